"""Signatures of functions: the schema that a model sees, a call that fits it, and one that does not."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, Union, Unpack
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from orchestrator import Context, tool
from orchestrator.errors import AgentError
from orchestrator.tools import IdempotencyKey
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    y: int = 0


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")
    points: list[Point]
    note: str | None = None


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@dataclass
class Size:
    width: int
    height: int = 1
    tags: list[str] = field(default_factory=list)


class Person(TypedDict):
    name: str
    age: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


UserId = NewType("UserId", int)
POINT = {
    "title": "Point", "type": "object", "required": ["x"],
    "properties": {"x": {"title": "X", "type": "integer"}, "y": {"title": "Y", "type": "integer", "default": 0}},
}  # fmt: skip


def nothing() -> str:
    return "done"


def text(a: str) -> str:
    return a


def number(a: float) -> float:
    return a


def whole(a: int) -> int:
    return a


def truth(a: bool) -> bool:
    return a


def default(a: int = 3) -> int:
    return a


def optional(a: Optional[int] = None) -> Any:  # noqa: UP045  it is what many write
    return a


def needed_or_null(a: int | None) -> Any:
    return a


def implied_null(a: int = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013  it is what many write
    return a


def literal(a: Literal["fahrenheit", "celsius"] = "fahrenheit") -> str:
    return a


def literal_mixed(a: Literal[1, "two", None]) -> Any:  # noqa: PYI061  it is what many write
    return a


def enum(a: Colour) -> str:
    assert isinstance(a, Colour)
    return a.name


def enum_default(a: Level = Level.HIGH) -> str:
    assert isinstance(a, Level)
    return a.name


def union(a: int | str) -> Any:
    return [type(a).__name__, a]


def old_union(a: Union[int, list[int]]) -> Any:  # noqa: UP007  it is what many write
    return a


def items(a: list[int]) -> int:
    return sum(a)


def bare_list(a: list) -> int:  # type: ignore[type-arg]  it is what many write
    return len(a)


def sequence(a: Sequence[str]) -> list[str]:
    return list(a)


def a_set(a: set[int]) -> int:
    assert isinstance(a, set)
    return len(a)


def a_tuple(a: tuple[int, str]) -> Any:
    assert isinstance(a, tuple)
    return list(a)


def mapping(a: dict[str, int]) -> int:
    return sum(a.values())


def bare_dict(a: dict) -> int:  # type: ignore[type-arg]  it is what many write
    return len(a)


def anything(a: Any) -> Any:
    return a


def unhinted(a) -> Any:  # type: ignore[no-untyped-def]
    return a


def unhinted_default(a=1.5) -> Any:  # type: ignore[no-untyped-def]
    return a


def from_docstring(a, b=2):  # type: ignore[no-untyped-def]
    """Add.

    Args:
        a (int): the first
        b (int, optional): the second
    """
    return a + b


def from_numpy_docstring(a, names):  # type: ignore[no-untyped-def]
    """Pick.

    Parameters
    ----------
    a : {int, None}
        which
    names : list of str
        of these
    """
    return names[a]


def from_sphinx_docstring(a, b=None):  # type: ignore[no-untyped-def]
    """Say.

    :param a: what
    :type a: str
    :param int b: how often
    """
    return a * (b or 1)


def model(a: Point) -> int:
    assert isinstance(a, Point)
    return a.x + a.y


def nested(a: Line) -> int:
    return sum(point.x for point in a.points)


def recursive(a: Tree) -> int:
    return 1 + sum(recursive(child) for child in a.children)


def a_dataclass(a: Size) -> int:
    assert isinstance(a, Size)
    return a.width * a.height


def typed_dict(a: Person) -> str:
    return a["name"]


class Friend(Person):
    friend: Person


def list_of_typed_dicts(a: list[Friend] | None) -> str:
    return a[0]["friend"]["name"] if a else ""


def named_tuple(a: Pair) -> Any:
    return a.right * a.left


def tagged(a: Annotated[Cat | Dog, Field(discriminator="kind")]) -> str:
    return type(a).__name__


def bounded(a: Annotated[int, Field(ge=1, le=9, description="one digit")]) -> int:
    return a


def patterned(a: Annotated[str, Field(pattern=r"^\w+$", max_length=5)]) -> str:
    return a


def field_default(a: int = Field(default=4, gt=0)) -> int:
    return a


def keyword_only(*, a: int, b: int = 1) -> int:
    return a + b


def _by_place(a: int = 1, b: int = 2, c: int = 3, /) -> list[int]:
    return [a, b, c]


async def test_what_is_left_out_before_an_argument_by_place_keeps_its_default() -> None:
    by_place = tool(_by_place)
    given = [{}, {"b": 5}, {"a": 7, "c": 9}]
    assert [(await by_place.invoke(by_place.validate(args))).output for args in given] == [
        [1, 2, 3],
        [1, 5, 3],
        [7, 2, 9],
    ]


def positional_only(a: int, /, b: int = 1) -> int:
    return a - b


def open_ended(a: int, **rest: int) -> int:
    return a + sum(rest.values())


def open_to_all(a: int, **rest) -> list[str]:  # type: ignore[no-untyped-def]
    return list(rest)


def a_date(a: date) -> int:
    assert isinstance(a, date)
    return a.year


def decimal(a: Decimal) -> str:
    assert isinstance(a, Decimal)
    return str(a + 1)


def uuid(a: UUID) -> str:
    assert isinstance(a, UUID)
    return a.hex[:4]


def new_type(a: UserId) -> int:
    return a


def injected(a: int, ctx: Context[Any], key: IdempotencyKey, idempotency_key: str = "") -> int:
    return a


async def asynchronous(a: int) -> int:
    return a


class Adder:
    def __init__(self, base: int) -> None:
        self.base = base

    def add(self, a: int) -> int:
        return self.base + a

    @tool
    def decorated(self, a: int) -> int:
        """Add to the base."""
        return self.base + a

    def __call__(self, a: int) -> int:
        return self.base + a


_INT = {"type": "integer"}
_STR = {"type": "string"}
_INT_NULL = {"anyOf": [_INT, {"type": "null"}]}

# function, properties ("a" alone is written without its name), required, arguments, what comes of them,
# arguments that do not fit, and what is said of them
CASES: list[tuple[Callable[..., Any], Any, str, dict[str, Any], Any, dict[str, Any], str]] = [
    (nothing, {}, "", {}, "done", {"a": 1}, "'a' is unknown; it takes none"),
    (text, _STR, "a", {"a": "60"}, "60", {"a": 60}, "'a' must be a string, not 60"),
    (number, {"type": "number"}, "a", {"a": "1.5"}, 1.5, {"a": "x"}, "'a' must be a number"),
    (whole, _INT, "a", {"a": "60"}, 60, {"a": 1.5}, "'a' must be a whole number, not 1.5"),
    (truth, {"type": "boolean"}, "a", {"a": "true"}, True, {"a": 1}, "'a' must be true or false, not 1"),
    (default, {**_INT, "default": 3}, "", {}, 3, {"a": None}, "'a' must be a whole number, not null"),
    (optional, {**_INT_NULL, "default": None}, "", {"a": None}, None, {"a": "x"}, "'a' matches none of its types"),
    (needed_or_null, _INT_NULL, "a", {"a": None}, None, {}, "'a' is missing"),
    (implied_null, {**_INT_NULL, "default": None}, "", {"a": None}, None, {"a": []}, "'a' matches none"),
    (literal, {"type": "string", "enum": ["fahrenheit", "celsius"], "default": "fahrenheit"}, "",
     {"a": "celsius"}, "celsius", {"a": "kelvin"}, "'a' must be one of"),
    (literal_mixed, {"enum": [1, "two", None]}, "a", {"a": None}, None, {"a": 2},
     '\'a\' must be one of 1, "two", null'),
    (enum, {"title": "Colour", "enum": ["red", "blue"], "type": "string"}, "a", {"a": "red"}, "RED", {"a": "RED"},
     "'a' must be one of"),
    (enum_default, {"title": "Level", "enum": [1, 2], "type": "integer", "default": 2}, "", {"a": "1"}, "LOW",
     {"a": 3}, "'a' must be one of 1, 2, not 3"),
    (union, {"anyOf": [_INT, _STR]}, "a", {"a": "1"}, ["str", "1"], {"a": [1]}, "'a' matches none of its types"),
    (old_union, {"anyOf": [_INT, {"type": "array", "items": _INT}]}, "a", {"a": "[1, 2]"}, [1, 2], {"a": ["x"]},
     "'a' matches none"),
    (items, {"type": "array", "items": _INT}, "a", {"a": ["1", 2]}, 3, {"a": [1, "x"]}, "'a'[1] must be a whole"),
    (bare_list, {"type": "array", "items": {}}, "a", {"a": [1, "x"]}, 2, {"a": 1}, "'a' must be a list"),
    (sequence, {"type": "array", "items": _STR}, "a", {"a": ["1"]}, ["1"], {"a": [1]}, "'a'[0] must be a string"),
    (a_set, {"type": "array", "items": _INT, "uniqueItems": True}, "a", {"a": [1, 2]}, 2, {"a": [1, 1]},
     "must not have the same item twice"),
    (a_tuple, {"type": "array", "prefixItems": [_INT, _STR], "minItems": 2, "maxItems": 2}, "a", {"a": [1, "x"]},
     [1, "x"], {"a": [1]}, "at least 2 items"),
    (mapping, {"type": "object", "additionalProperties": _INT}, "a", {"a": {"x": 1, "y": "2"}}, 3, {"a": {"x": "y"}},
     "'a'.x must be a whole number"),
    (bare_dict, {"type": "object", "additionalProperties": True}, "a", {"a": "{'x': 1}"}, 1, {"a": []},
     "'a' must be an object"),
    (anything, {}, "a", {"a": [1, {"b": None}]}, [1, {"b": None}], {}, "'a' is missing"),
    (unhinted, {}, "a", {"a": "1"}, "1", {"b": 1}, "'b' is unknown"),
    (unhinted_default, {"type": "number", "default": 1.5}, "", {"a": 2}, 2, {"a": "x"}, "'a' must be a number"),
    (from_docstring, {"a": {**_INT, "description": "the first"},
                      "b": {**_INT, "default": 2, "description": "the second"}},
     "a", {"a": 1}, 3, {"a": "x"}, "'a' must be a whole number"),
    (from_numpy_docstring, {"a": {"description": "which"},
                            "names": {"type": "array", "items": _STR, "description": "of these"}},
     "a names", {"a": 0, "names": ["x"]}, "x", {"a": 0, "names": [1]}, "'names'[0] must be a string"),
    (from_sphinx_docstring, {"a": {**_STR, "description": "what"},
                             "b": {**_INT_NULL, "default": None, "description": "how often"}},
     "a", {"a": "x", "b": 2}, "xx", {"a": 1}, "'a' must be a string"),
    (model, POINT, "a", {"a": {"x": "1", "y": 2}}, 3, {"a": {"y": 1}}, "'a'.x is missing"),
    (nested, None, "a", {"a": {"points": [{"x": 1}, {"x": 2}]}}, 3, {"a": {"points": [{"y": 1}]}},
     "'a'.points[0].x is missing"),
    (recursive, None, "a", {"a": {"name": "r", "children": [{"name": "c"}]}}, 2, {"a": {"name": "r", "children": [{}]}},
     "'a'.children[0].name is missing"),
    (a_dataclass, None, "a", {"a": {"width": 2, "height": 3}}, 6, {"a": {"height": 3}}, "'a'.width is missing"),
    (typed_dict, None, "a", {"a": {"name": "Ann"}}, "Ann", {"a": {"name": "Ann", "age": "old"}}, "'a'.age must be"),
    (list_of_typed_dicts, None, "a", {"a": [{"name": "Ann", "friend": {"name": "Bob"}}]}, "Bob",
     {"a": [{"name": "Ann"}]}, "'a'[0].friend is missing"),
    (named_tuple, None, "a", {"a": [2, "x"]}, "xx", {"a": ["x", "x"]}, "'a'[0] must be a whole number"),
    (tagged, None, "a", {"a": {"kind": "cat", "lives": 9}}, "Cat", {"a": {"kind": "cow"}}, "'a'"),
    (bounded, {**_INT, "minimum": 1, "maximum": 9, "description": "one digit"}, "a", {"a": 9}, 9, {"a": 10},
     "'a' must be at most 9, not 10"),
    (patterned, {"type": "string", "pattern": r"^\w+$", "maxLength": 5}, "a", {"a": "ab"}, "ab", {"a": "a b"},
     "'a' must match"),
    (field_default, {**_INT, "exclusiveMinimum": 0, "default": 4}, "", {}, 4, {"a": 0}, "'a' must be more than 0"),
    (keyword_only, {"a": _INT, "b": {**_INT, "default": 1}}, "a", {"a": 1, "b": 2}, 3, {"b": 1}, "'a' is missing"),
    (positional_only, {"a": _INT, "b": {**_INT, "default": 1}}, "a", {"a": 5, "b": 2}, 3, {"b": 1}, "'a' is missing"),
    (open_ended, _INT, "a", {"a": 1, "b": 2}, 3, {"a": 1, "b": "x"}, "'b' must be a whole number"),
    (open_to_all, _INT, "a", {"a": 1, "b": ["x"]}, ["b"], {"b": 1}, "'a' is missing"),
    (a_date, {"type": "string", "format": "date"}, "a", {"a": "2026-11-21"}, 2026, {"a": "soon"}, "'a'"),
    (decimal, None, "a", {"a": "1.5"}, "2.5", {"a": []}, "'a'"),
    (uuid, {"type": "string", "format": "uuid"}, "a", {"a": "00010203-0405-0607-0809-0a0b0c0d0e0f"}, "0001",
     {"a": "x"}, "'a'"),
    (new_type, _INT, "a", {"a": 1}, 1, {"a": "x"}, "'a' must be a whole number"),
    (injected, _INT, "a", {"a": 1}, 1, {"a": 1, "idempotency_key": "k"}, "'idempotency_key' is unknown"),
    (asynchronous, _INT, "a", {"a": 1}, 1, {"a": "x"}, "'a' must be a whole number"),
    (Adder(2).add, _INT, "a", {"a": 1}, 3, {"self": 1, "a": 1}, "'self' is unknown"),
    (Adder(2).decorated, _INT, "a", {"a": 1}, 3, {"self": 1, "a": 1}, "'self' is unknown"),
    (Adder(2), _INT, "a", {"a": 1}, 3, {"a": "x"}, "'a' must be a whole number"),
    (lambda a: a, {}, "a", {"a": 1}, 1, {}, "'a' is missing"),
]  # fmt: skip


def _name(case: Any) -> str:
    return str(getattr(case[0], "name", None) or getattr(case[0], "__name__", type(case[0]).__name__))


@pytest.mark.parametrize("case", CASES, ids=_name)
async def test_signature(case: Any, anyio_backend_name: str) -> None:
    function, properties, required, fits, output, unfit, fault = case
    one = tool(function, name=_name(case).strip("<>"))
    schema: Any = one.parameters
    if properties is not None:
        expected = properties if function is nothing or "a" in properties else {"a": properties}
        found = schema["properties"]
        if "$ref" in found.get("a", {}):
            found = {"a": {**schema["$defs"][found["a"]["$ref"].rpartition("/")[2]], **found["a"]}}
            del found["a"]["$ref"]
        assert found == expected
    assert schema.get("required", []) == required.split()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] == {open_ended: _INT, open_to_all: True}.get(function, False)
    result = await one.invoke(one.validate(fits))
    assert (result.error, result.output) == (None, output)
    with pytest.raises(AgentError) as caught:
        one.validate(unfit)
    assert fault in str(caught.value)


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40


def test_strict_mode_on_request() -> None:
    """Every property is required, and can be null where it could be left out."""
    written = tool(keyword_only).to_param(strict=True)["function"]
    assert written["strict"] is True
    assert written["parameters"] == {
        "type": "object", "properties": {"a": _INT, "b": {"anyOf": [_INT, {"type": "null"}]}},
        "required": ["a", "b"], "additionalProperties": False,
    }  # fmt: skip
    assert "strict" not in tool(keyword_only).to_param()["function"]
    loose = tool(open_ended).to_param(strict=True)["function"]
    assert "strict" not in loose
    assert loose == tool(open_ended).to_param()["function"]


@pytest.mark.parametrize("function", [lambda *names: names, lambda a, *names, b=1: names])
def test_arguments_without_names_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"takes \*names: a model gives arguments by name, so take a list instead"):
        tool(name="x")(function)


def test_keywords_of_a_typed_dict_are_refused_with_what_to_do() -> None:
    def takes(**rest: Unpack[Person]) -> None: ...

    with pytest.raises(TypeError, match="write the keywords of Person as parameters"):
        tool(takes).to_param()


DIGESTS = """
import time
from pydantic import BaseModel, Field
from orchestrator import tool
class Of(BaseModel):
    words: frozenset[str] = frozenset("abcdef")
def takes(a: set[str] = {"x", "y", "z", "v", "w"}, b: Of = Of(), c: float = Field(default_factory=time.time)): ...
print(tool(takes).schema_digest, tool(takes).parameters["properties"]["a"]["default"])
"""


@pytest.mark.full
def test_a_schema_is_the_same_in_each_process() -> None:
    """Else a run could not go on in another one: its tools would be taken for changed."""
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in sized(("1",), ("1", "2"))
    }
    told = io.StringIO()
    with contextlib.redirect_stdout(told):  # in this one, whose seed is drawn
        exec(DIGESTS, {"__name__": "__main__"})
    found.add(told.getvalue())
    assert len(found) == 1
    assert "['v', 'w', 'x', 'y', 'z']" in found.pop()


def test_a_default_that_json_cannot_say_is_left_out() -> None:
    def takes(a: float = math.nan) -> None: ...

    assert tool(takes).parameters["properties"] == {"a": {"type": "number"}}
