"""What a model is told of a tool comes from its name, hints and docstring, of any style."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from orchestrator import Context, Tool, tool
from orchestrator.errors import SecretInState
from orchestrator.tools import IdempotencyKey


def google(city: str, unit: Literal["C", "F"] = "C", days: int = 3) -> str:
    """The weather in a city.

    All of this text is for the model,
    not only its first line.

    Args:
        city: name of the city,
            in English.
        unit: degrees.
        days: how many.

    Returns:
        Words.
    """
    return city


def numpy(city: str, unit: Literal["C", "F"] = "C", days: int = 3) -> str:
    """The weather in a city.

    All of this text is for the model,
    not only its first line.

    Parameters
    ----------
    city : str
        name of the city,
        in English.
    unit : {"C", "F"}
        degrees.
    days : int, optional
        how many.

    Returns
    -------
    str
        Words.
    """
    return city


def sphinx(city: str, unit: Literal["C", "F"] = "C", days: int = 3) -> str:
    """The weather in a city.

    All of this text is for the model,
    not only its first line.

    :param city: name of the city,
        in English.
    :param unit: degrees.
    :type unit: str
    :param int days: how many.
    :returns: Words.
    """
    return city


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_every_style_of_docstring_says_the_same(function: Callable[..., str]) -> None:
    assert tool(function).to_param() == {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": (
                "The weather in a city.\n\nAll of this text is for the model,\nnot only its first line."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "name of the city, in English."},
                    "unit": {"enum": ["C", "F"], "type": "string", "description": "degrees.", "default": "C"},
                    "days": {"type": "integer", "description": "how many.", "default": 3},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }  # fmt: skip


def test_types_may_come_from_the_docstring() -> None:
    def google(a, b=1, c=None):  # type: ignore[no-untyped-def]
        """Add.

        Args:
            a (int): the first.
            b (float, optional): the second. Defaults to 1.
            c (list[str]): words.
        """

    def numpy(a, b=1, c=None):  # type: ignore[no-untyped-def]
        """Add.

        Parameters
        ----------
        a : integer
            the first.
        b : number, optional
            the second.
        c : list of str
            words.
        """

    def sphinx(a, b=1, c=None):  # type: ignore[no-untyped-def]
        """Add.

        :param int a: the first
        :param b: the second
        :type b: float
        :param c: words
        :type c: list[str] or None
        """

    for function in (google, numpy, sphinx):
        properties = properties_of(tool(function))
        assert (properties["a"]["type"], properties["b"]["type"]) == ("integer", "number")
        assert properties["c"]["anyOf"] == [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("int, optional", {"type": "integer"}),
        ("Optional[int], optional", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ("array of numbers", {"type": "array", "items": {"type": "number"}}),
        ("{'x', 'y'}, optional", {"enum": ["x", "y"], "type": "string"}),
        ("typing.Literal[1, 2]", {"enum": [1, 2], "type": "integer"}),
        ("Literal[open('x')]", {}),
        ("{x, y}", {}),
        ("{}", {}),
    ],
)
def test_types_as_docstrings_write_them(written: str, schema: dict[str, Any]) -> None:
    def takes(a):  # type: ignore[no-untyped-def]
        ...

    takes.__doc__ = f"Take it.\n\nParameters\n----------\na : {written}\n    It."
    assert properties_of(tool(takes))["a"] == {**schema, "description": "It."}


def test_a_hint_comes_before_the_docstring_and_nothing_in_that_is_evaluated() -> None:
    def either(a: int, b, c, d=2.5):  # type: ignore[no-untyped-def]
        """Do.

        Args:
            a (str): hinted otherwise.
            b (__import__("os").system("true")): no type.
            c (some words): no type either.
        """

    properties = properties_of(tool(either))
    assert properties["a"]["type"] == "integer"
    assert "type" not in properties["b"]
    assert "type" not in properties["c"]
    assert properties["d"] == {"type": "number", "default": 2.5}


def test_without_a_docstring_there_is_no_description() -> None:
    def bare(a: int) -> int:
        return a

    assert tool(bare).description == ""
    assert properties_of(tool(bare)) == {"a": {"type": "integer"}}


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    name: str = Field(description="its name")
    height: int = Field(default=0, ge=0)


@dataclass
class Trip:
    to: Place
    on: date | None = None


def properties_of(one: Tool) -> dict[str, Any]:
    found: Any = one.parameters["properties"]
    return dict(found)


def test_types_of_every_kind() -> None:
    def many(
        number: Annotated[int, Field(ge=1, le=5, description="one to five")],
        color: Color,
        trip: Trip,
        maybe: int | None = None,
        either: int | str = 1,
        table: dict[str, float] | None = None,
        words: list[str] = Field(default_factory=list, description="some words"),  # noqa: B008
        anything: Any = None,
    ) -> None:
        """Many."""

    one = tool(many)
    properties = properties_of(one)
    assert properties["number"] == {"type": "integer", "minimum": 1, "maximum": 5, "description": "one to five"}
    assert properties["color"] == {"$ref": "#/$defs/Color"}
    assert properties["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["either"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["table"]["anyOf"][0]["additionalProperties"] == {"type": "number"}
    assert properties["words"] == {
        "type": "array", "items": {"type": "string"}, "description": "some words", "default": [],
    }  # fmt: skip
    assert properties["anything"] == {"default": None}
    assert one.parameters["required"] == ["number", "color", "trip"]
    assert set(one.parameters["$defs"]) == {"Color", "Place", "Trip"}  # type: ignore[call-overload]


def test_what_is_none_by_itself_can_be_given_as_none() -> None:
    def either(tags: list[str] = None, size: Annotated[int | None, Field(description="of it")] = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
        """Either."""

    one = tool(either)
    assert one.validate({"tags": None, "size": None}) == {"tags": None, "size": None}
    assert one.validate({"tags": ["a"]}) == {"tags": ["a"]}
    assert properties_of(one)["size"]["description"] == "of it"


def test_hints_may_name_what_is_only_known_where_the_tool_is_made() -> None:
    class Local(BaseModel):
        x: int

    @tool
    def use(value: Local) -> int:
        """Use it."""
        return value.x

    assert properties_of(use) == {"value": {"$ref": "#/$defs/Local"}}


def test_what_is_injected_is_no_part_of_the_schema() -> None:
    @tool
    def one(a: int, ctx: object, idempotency_key: str) -> None:
        """By name."""

    @tool
    def two(a: int, context: Context[None], key: IdempotencyKey) -> None:
        """By annotation."""

    for each in (one, two):
        assert list(properties_of(each)) == ["a"]
        assert each.parameters["required"] == ["a"]


def test_further_keywords_are_taken_if_the_function_takes_them() -> None:
    @tool
    def open_(a: int, **others: object) -> None:
        """Open."""

    assert open_.parameters["additionalProperties"] is True
    assert open_.validate({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}


def test_a_partial_is_a_tool_of_what_is_left() -> None:
    one = tool(partial(google, unit="F"), name="fahrenheit")
    assert next(iter(properties_of(one))) == "city"
    assert one.description.startswith("The weather in a city.")
    assert one.parameters["required"] == ["city"]


# -- what cannot be a tool -----------------------------------------------------------------------------------------


def test_arguments_without_a_name() -> None:
    def many(*names: str) -> None:
        """Many."""

    with pytest.raises(TypeError, match=r"takes \*names: a model gives arguments by name, so take a list instead"):
        tool(many)


def test_a_type_that_json_cannot_say() -> None:
    class Own:
        pass

    def use(value: Own) -> None:
        """Use."""

    with pytest.raises(TypeError, match=r"tool 'use', parameter 'value': .*use a type that JSON can represent"):
        _ = tool(use).parameters


def test_a_type_that_is_not_known() -> None:
    def use(value: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Use."""

    with pytest.raises(TypeError, match=r"parameter 'value': the type 'Missing' is not known .*; import it there"):
        _ = tool(use).parameters


@pytest.mark.parametrize("hint", [SecretStr, SecretStr | None, list[SecretStr], dict[str, SecretStr]])
def test_a_parameter_that_is_a_secret(hint: Any) -> None:
    def use(key: Any) -> None:
        """Use."""

    use.__annotations__["key"] = hint
    with pytest.raises(SecretInState, match=r"parameter 'key' is a secret, .*: take it from ctx.deps instead"):
        _ = tool(use).parameters


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "two  words"}, "not a name that a model can call"),
        ({"name": "x" * 200}, "not a name that a model can call"),
        ({"risk": "huge"}, "risk 'huge' is not one of none, read, write, dangerous"),
        ({"effect": "none"}, "effect 'none' is not one of pure, read, idempotent, irreversible"),
        ({"timeout": 0}, "timeout 0 is not a positive number of seconds"),
        ({"timeout": "1"}, "timeout '1' is not a positive number"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        tool(**options)(google)
    with pytest.raises(TypeError, match=words):
        tool(google).with_(**options)


def test_the_least_trusted_is_the_default() -> None:
    one = tool(google)
    assert (one.risk, one.effect, one.timeout, one.retry, one.ends, one.group) == (
        "dangerous", "irreversible", None, None, False, None,
    )  # fmt: skip


# -- digests -------------------------------------------------------------------------------------------------------


def test_the_digest_is_of_what_it_takes_and_not_of_words() -> None:
    one = tool(google)
    assert one.schema_digest == one.with_(description="other", risk="none").schema_digest
    assert one.schema_digest != one.with_(name="other").schema_digest

    def google2(city: str, unit: Literal["C", "F"] = "C", days: float = 3) -> str:
        """Other."""
        return city

    assert one.schema_digest != tool(google2, name="google").schema_digest
    assert one.schema_digest == tool(numpy, name="google").schema_digest


def test_sections_of_a_docstring_need_no_blank_line_before_them() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """
        Add: the sum
        of both.
        Args:
            a (int): the first one.
            b (int): the second one.
        Returns:
            int: the sum.
        """
        return a + b

    @tool
    def note(text: str) -> str:
        """Take a note.
        Note: it is kept.
        """
        return text

    assert add.description == "Add: the sum\nof both."
    assert [one["description"] for one in add.to_param()["function"]["parameters"]["properties"].values()] == [
        "the first one.",
        "the second one.",
    ]
    assert note.description == "Take a note. Note: it is kept."
