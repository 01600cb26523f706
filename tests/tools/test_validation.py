"""Arguments are checked in full before anybody is asked and anything runs; nothing in them is evaluated."""

from __future__ import annotations

import math
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from orchestrator import Tool, Toolbox, tool
from orchestrator.errors import AgentError, SecretInState
from orchestrator.tools.mcp.untrusted import checked_schema
from orchestrator.tools.validation import coerced, faults
from tests.support.sizes import sized


@tool
def take(
    whole: int = 0,
    number: float = 0,
    text: str = "",
    flag: bool = False,
    words: list[str] | None = None,
    table: dict[str, int] | None = None,
    mode: Literal["fast", "slow"] = "fast",
    level: Literal[1, 2] = 1,
    either: int | str = 0,
) -> Any:
    """Take one of each."""


@pytest.mark.parametrize(
    ("name", "given_", "found"),
    [
        ("whole", "60", 60),
        ("whole", " 7 ", 7),
        ("whole", 3.0, 3),
        ("whole", "1e3", 1000),
        ("number", "2.5", 2.5),
        ("number", 1, 1),
        ("flag", "true", True),
        ("flag", "False", False),
        ("words", '["a", "b"]', ["a", "b"]),
        ("words", "['a', 'b']", ["a", "b"]),
        ("words", "null", None),
        ("table", '{"a": "1"}', {"a": 1}),
        ("table", {"a": "1"}, {"a": 1}),
        ("level", "2", 2),
        # A text is left alone wherever a text is welcome.
        ("text", "60", "60"),
        ("text", "[1]", "[1]"),
        ("text", "None", "None"),
        ("either", "60", "60"),
        ("mode", "slow", "slow"),
    ],
)
def test_texts_become_what_the_schema_wants(name: str, given_: object, found: object) -> None:
    value = take.validate({name: given_})[name]
    assert value == found
    assert type(value) is type(found)


@pytest.mark.parametrize(
    ("name", "given_", "fault"),
    [
        ("whole", "many", "'whole' must be a whole number, not \"many\""),
        ("whole", 1.5, "'whole' must be a whole number, not 1.5"),
        ("whole", True, "'whole' must be a whole number, not true"),
        ("whole", None, "'whole' must be a whole number, not null"),
        ("whole", [1], "'whole' must be a whole number, not "),
        ("whole", "1 + 1", "'whole' must be a whole number"),
        ("whole", "True", "'whole' must be a whole number"),
        ("number", "nan", "'number' must be a number"),
        ("number", True, "'number' must be a number, not true"),
        ("text", 5, "'text' must be a string, not 5"),
        ("text", {"a": 1}, "'text' must be a string"),
        ("flag", 1, "'flag' must be true or false, not 1"),
        ("flag", "yes", "'flag' must be true or false"),
        ("words", "a, b", "'words' matches none of its types"),
        ("words", [1], "'words' matches none of its types"),
        ("table", {"a": "x"}, "'table' matches none of its types"),
        ("mode", "medium", '\'mode\' must be one of "fast", "slow", not "medium"'),
        ("level", 3, "'level' must be one of 1, 2, not 3"),
        ("level", True, "'level' must be"),
        ("either", [], "'either' matches none of its types"),
        ("other", 1, "'other' is unknown"),
    ],
)
def test_whatever_does_not_fit_is_refused(name: str, given_: object, fault: str) -> None:
    with pytest.raises(AgentError) as caught:
        take.validate({name: given_})
    assert fault in str(caught.value)
    assert str(caught.value).startswith("tool 'take': wrong arguments: ")


def test_all_faults_are_told_at_once_with_what_there_is() -> None:
    @tool
    def pair(left: int, right: int, middle: int) -> None:
        """Pair."""

    with pytest.raises(AgentError) as caught:
        pair.validate({"left": "x", "other": 1, "middle": 0})
    assert str(caught.value) == (
        "tool 'pair': wrong arguments: 'right' is missing; 'left' must be a whole number, not \"x\"; "
        "'other' is unknown; it takes left, right, middle"
    )

    @tool
    def nothing() -> None:
        """Take nothing."""

    with pytest.raises(AgentError, match="'a' is unknown; it takes none"):
        nothing.validate({"a": 1})
    assert nothing.validate({}) == {}


@pytest.mark.parametrize(
    ("hint", "good", "bad", "fault"),
    [
        (Annotated[int, Field(ge=1, lt=5)], [1, 4], [0, 5], "must be"),
        (Annotated[int, Field(multiple_of=5)], [0, 10], [3], "must be a multiple of 5"),
        (Annotated[float, Field(gt=0)], [0.1], [0, -1], "must be more than 0"),
        (Annotated[str, Field(min_length=2, max_length=3)], ["ab", "abc"], ["a", "abcd"], "characters"),
        (Annotated[str, Field(pattern="^a+$")], ["aa"], ["b"], "must match"),
        (Annotated[list[int], Field(min_length=1, max_length=2)], [[1]], [[], [1, 2, 3]], "items"),
        (set[int], [[1, 2]], [[1, 1]], "must not have the same item twice"),
        (tuple[int, str], [[1, "a"]], [[1], ["a", 1], [1, "a", 2]], "'a'"),
        (datetime, ["2024-01-02T03:04:05Z"], ["yesterday"], "'a'"),
        (Annotated[str, AfterValidator(str.upper)], ["x"], [1], "must be a string"),
    ],
)
def test_bounds_and_types_of_pydantic_hold(hint: Any, good: list[Any], bad: list[Any], fault: str) -> None:
    def use(a: Any) -> None:
        """Use."""

    use.__annotations__["a"] = hint
    one = tool(use)
    for value in good:
        assert one.validate({"a": value}) == {"a": value}
    for value in bad:
        with pytest.raises(AgentError, match=fault):
            one.validate({"a": value})


class Color(Enum):
    RED = "red"


class Place(BaseModel):
    name: str
    height: int = 0


@dataclass
class Trip:
    to: Place
    stops: list[Place]


def test_a_function_gets_what_it_hints() -> None:
    seen: list[Any] = []

    @tool
    def go(
        trip: Trip, color: Color, on: datetime, both: tuple[int, str], loud: Annotated[str, AfterValidator(str.upper)]
    ) -> None:
        """Go."""
        seen.extend([trip, color, on, both, loud])

    args = go.validate({
        "trip": {"to": {"name": "Rome", "height": "21"}, "stops": [{"name": "Bern"}]},
        "color": "red",
        "on": "2024-01-02T03:04:05Z",
        "both": [1, "a"],
        "loud": "hey",
    })  # fmt: skip
    assert args["trip"] == {"to": {"name": "Rome", "height": 21}, "stops": [{"name": "Bern"}]}  # plain, for the journal
    anyio.run(go.perform, args)
    assert seen[0] == Trip(Place(name="Rome", height=21), [Place(name="Bern")])
    assert seen[1] is Color.RED
    assert isinstance(seen[2], datetime)
    assert seen[3:] == [(1, "a"), "HEY"]


def test_faults_inside_of_values_are_placed() -> None:
    @tool
    def go(place: Place, trip: Trip) -> None:
        """Go."""

    with pytest.raises(AgentError) as caught:
        go.validate({"place": {"height": "high"}, "trip": {"to": {"name": "x"}, "stops": [{"name": 1}]}})
    for fault in ("'place'.name is missing", "'place'.height must be a whole number", "'trip'.stops[0].name"):
        assert fault in str(caught.value)


@pytest.mark.parametrize("secret", [SecretStr("s3cret-value"), [SecretStr("s3cret-value")]])
def test_a_secret_is_refused_and_not_shown(secret: object) -> None:
    with pytest.raises(SecretInState, match=r"tool 'take': an argument contains a secret") as caught:
        take.validate({"text": secret})
    assert "s3cret-value" not in repr(caught.value)


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(AgentError, match="the arguments are not JSON: inf is not a number that JSON can represent"):
        take.validate({"number": math.inf})
    with pytest.raises(AgentError):
        take.validate({"text": object()})


def test_nothing_is_evaluated(tmp_path: Any) -> None:
    bait = tmp_path / "bait"
    code = f"open({str(bait)!r}, 'w').write('x')"
    for name in ("whole", "words", "table", "text", "either", "flag"):
        with suppress(AgentError):
            assert take.validate({name: code}) == {name: code}
    assert not bait.exists()


@pytest.mark.parametrize(
    "text", ["(" * 50_000, "[" * 50_000, "9" * 50_000, "-" * 50_000 + "1", "{'a':" * 9_000, "1e999"]
)
def test_huge_texts_are_not_read(text: str) -> None:
    for name in ("whole", "words", "table", "number"):
        with pytest.raises(AgentError) as caught:
            take.validate({name: text})
        assert len(str(caught.value)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WRITTEN = st.sampled_from(["1", "[1]", "'a'", '{"a": 1}', "true", "None", "1.0", "['1', 2]", '"60"', "[[1]]"])


@given(st.dictionaries(st.sampled_from(sorted(take.parameters["properties"])), JSON | WRITTEN))  # type: ignore[call-overload]
def test_what_was_validated_is_valid_and_stays_as_it_is(args: dict[str, Any]) -> None:
    try:
        found = take.validate(args)
    except AgentError:
        return
    assert take.validate(found) == found
    assert repr(take.validate(found)) == repr(found)  # 1 and 1.0 and True are equal
    anyio.run(take.perform, found)


class Declared(Tool):
    """Says its schema itself."""

    name = "declared"
    parameters = {  # noqa: RUF012  a schema, as other systems write it
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1},
            "kind": {"oneOf": [{"const": "a"}, {"type": "integer"}]},
            "tree": {"$ref": "#/$defs/tree"},
        },
        "required": ["n"],
        "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}},
    }

    def call(self, **args: Any) -> Any:
        return args


def test_a_declared_schema_is_taken_at_its_word() -> None:
    one = Declared()
    args = {"n": "3", "kind": "a", "tree": {"left": {"left": {}}}}
    assert one.validate(args) == {"n": 3, "kind": "a", "tree": {"left": {"left": {}}}}
    for bad, fault in [
        ({}, "'n' is missing"),
        ({"n": 0}, "'n' must be at least 1, not 0"),
        ({"n": 1, "kind": "b"}, "'kind' matches none of its types"),
        ({"n": 1, "tree": {"left": 5}}, "'tree'.left must be an object, not 5"),
        ({"n": 1, "x": 1}, "'x' is unknown; it takes n, kind, tree"),
    ]:
        with pytest.raises(AgentError) as caught:
            one.validate(bad)
        assert fault in str(caught.value)
    assert anyio.run(one.invoke, one.validate(args)).output == one.validate(args)


class Closed(Tool):
    """Takes what its schema does not forbid."""

    parameters = {  # noqa: RUF012  as users write it
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
            "of": {"type": "object", "properties": {"never": False}},
        },
    }

    def call(self, **args: Any) -> Any:
        return args


def test_what_a_schema_forbids_is_refused() -> None:
    one = Closed()
    assert one.validate({"pair": [1], "of": {"other": 1}}) == {"pair": [1], "of": {"other": 1}}
    with pytest.raises(AgentError, match=r"'pair'\[1\] is not allowed; 'of'\.never is not allowed"):
        one.validate({"pair": [1, 2], "of": {"never": 1}})


def test_long_lists_are_checked_in_a_time_that_goes_with_their_length() -> None:
    @tool
    def take_set(a: set[int]) -> None: ...

    def turns(length: int) -> int:
        """How many lines of Python it takes."""
        count = 0

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal count
            count += 1
            return trace

        values = list(range(length))
        take_set.validate({"a": values})
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            take_set.validate({"a": values})
        finally:
            sys.settrace(before)
        return count

    assert turns(400) < 6 * turns(100)
    for same in ([1, 1.0], [[1], [1]]):
        assert faults(same, {"uniqueItems": True}, {}, "it") == ["it must not have the same item twice"]
    for other in ([1, True, "1", None], [[1], "[1]"], [{"a": 1}, {"a": 2}]):
        assert faults(other, {"uniqueItems": True}, {}, "it") == []


@pytest.mark.full
def test_not_all_of_very_many_faults_are_told() -> None:
    @tool
    def take_list(a: list[int]) -> None: ...

    with pytest.raises(AgentError) as caught:
        take_list.validate({"a": ["x"] * 5000})
    assert "'a'[19] must be" in str(caught.value)
    assert str(caught.value).endswith("; and 4980 more faults; it takes a")


# -- schemas that take long --------------------------------------------------------------------------------------

_ITSELF = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/x"}}] * 2 + [{"type": "integer"}]}
_WAYS = {"$defs": {"x": _ITSELF}}
_CIRCLE = {"$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]}}}


def nested(levels: int, inside: object) -> object:
    for _ in range(levels):
        inside = [inside]
    return inside


@pytest.mark.full
@pytest.mark.parametrize("root", [_WAYS, _CIRCLE])
def test_a_schema_with_endless_ways_to_fit_is_given_up(root: dict[str, Any]) -> None:
    start = time.thread_time()
    (fault,) = faults(nested(40, "x"), root["$defs"]["x"], root, "'a'")
    assert fault.startswith("'a' takes too many steps to check, because its schema has too many alternatives")
    coerced(nested(40, "1"), root["$defs"]["x"], root)
    assert time.thread_time() - start < 5


@pytest.mark.full
def test_a_large_value_has_a_budget_of_its_size() -> None:
    schema = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}}
    many = sized(14_000, 20_000)
    assert faults([1] * many, schema, {}) == []
    assert faults([*[1] * many, 1.5], schema, {})[0].startswith(f"[{many}] matches none of its types")


@pytest.mark.full
def test_many_values_of_a_long_enumeration_are_given_up() -> None:
    schema = {"type": "array", "items": {"enum": [str(n) for n in range(10_000)]}}
    start = time.thread_time()
    assert "takes too many steps to check" in faults(["9999"] * sized(10_000, 100_000), schema, {})[0]
    assert time.thread_time() - start < sized(4, 20)
    assert faults(["9999"] * 10, schema, {}) == []


@pytest.mark.parametrize("pattern", ["^(a?){26}a{26}$", "^(a+)+$", "^(a|a)*$", "(x+x+)+y"])
def test_a_pattern_is_tried_in_linear_time(pattern: str) -> None:
    start = time.thread_time()
    assert faults("a" * 90_000 + "!", {"type": "string", "pattern": pattern}, {})[0].startswith(" must match")
    assert time.thread_time() - start < 2


def test_a_pattern_that_no_linear_engine_tries_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "string", "pattern": r"^(?=left out)(a+)+$\1"}
    assert faults("b", schema, {}) == [] == faults("c", schema, {})
    (record,) = caplog.records
    assert "(?=left out)" in record.getMessage()
    assert "is not checked" in record.getMessage()


class Raw(Tool):
    name = "raw"
    description = "Takes what a server's schema takes."
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, **_WAYS}  # noqa: RUF012

    async def call(self, **given: Any) -> str:
        return "called"


@pytest.mark.full
def test_a_tool_with_such_a_schema_refuses_the_call() -> None:
    with pytest.raises(AgentError, match="takes too many steps to check"):
        Raw().validate({"a": nested(40, "x")})
    assert Raw().validate({"a": [[1, 2]]}) == {"a": [[1, 2]]}


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"not": {"type": "string"}}, 1, "a"),
        ({"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"maxLength": 1}}, 3, 2),
        ({"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"maxLength": 1}}, "a", "ab"),
        ({"contains": {"type": "integer"}}, ["a", 1], ["a"]),
        ({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 2}, [1, 2], [1, 2, 3]),
        ({"propertyNames": {"pattern": "^a"}}, {"ab": 1}, {"b": 1}),
        ({"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {"a": 1}, {"a": "x"}),
        ({"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
        ({"minProperties": 1, "maxProperties": 2}, {"a": 1}, {}),
        ({"minProperties": 1, "maxProperties": 2}, {"a": 1}, {"a": 1, "b": 2, "c": 3}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 2}, {"a": 1}),
        ({"multipleOf": 0.1}, 0.3, 0.35),
        ({"multipleOf": 0.5}, 10**400, math.inf),
        ({"multipleOf": 3}, 9.0, 10.0),
    ],
)
def test_every_keyword_is_checked(schema: dict[str, Any], fits: Any, does_not: Any) -> None:
    assert faults(fits, schema, schema) == []
    assert faults(does_not, schema, schema) != []


def test_it_agrees_with_an_implementation_of_others() -> None:
    from jsonschema import Draft202012Validator as validator  # noqa: N813

    leaf = st.sampled_from(
        [
            {}, True, False, {"type": "integer"}, {"type": ["string", "null"]}, {"minimum": 2}, {"maxLength": 1},
            {"enum": [1, "a"]}, {"const": "b"}, {"pattern": "^a+$"}, {"required": ["a"]}, {"minItems": 1},
            {"maxProperties": 1}, {"dependentRequired": {"a": ["b"]}}, {"uniqueItems": True}, {"multipleOf": 2},
        ]
    )  # fmt: skip

    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.lists(inner, min_size=1, max_size=2)
        return st.one_of(
            *(st.builds(lambda one, k=keyword: {k: one}, inner) for keyword in ("not", "items", "contains")),
            *(st.builds(lambda many, k=keyword: {k: many}, lists) for keyword in ("anyOf", "oneOf", "allOf")),
            st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, inner, inner, inner),
            st.builds(lambda one, two: {"properties": {"a": one}, "additionalProperties": two}, inner, inner),
            st.builds(lambda one: {"patternProperties": {"^a": one}}, inner),
            st.builds(lambda one: {"prefixItems": [one], "items": False}, inner),
            st.builds(lambda one: {"dependentSchemas": {"b": one}}, inner),
        )

    values = st.recursive(
        st.sampled_from([None, 0, 1, 2, 3, "", "a", "aa", "b"]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3)
        ),
        max_leaves=4,
    )

    @given(st.recursive(leaf, grown, max_leaves=5), values)
    def agrees(schema: Any, value: Any) -> None:
        mine = not faults(value, schema, schema if isinstance(schema, dict) else {})
        assert mine == validator(schema).is_valid(value)

    agrees()


def _own(schema: object) -> Toolbox:
    """A toolbox with a tool whose one property has this schema."""

    class Wait(Tool):
        name = "wait"
        parameters = {"type": "object", "properties": {"s": schema}, "$defs": {"A": {"type": "string"}}}  # noqa: RUF012

        def call(self, **given: object) -> object:
            """Wait."""
            return given

    return Toolbox(Wait())


def _of_server(schema: object) -> Toolbox:
    checked_schema({"type": "object", "properties": {"s": schema}, "$defs": {"A": {"type": "string"}}})
    return Toolbox()


BOTH = [
    *(
        ({"type": word}, f"the type .{re.escape(word)}., which does not exist; did you mean {kind!r}")
        for word, kind in {
            "dict": "object", "float": "number", "int": "integer", "str": "string", "bool": "boolean", "list": "array",
            "tuple": "array", "set": "array", "String": "string", "NUMBER": "number", "text": "string",
            "double": "number", "long": "integer", "map": "object", "None": "null", "list[str]": "array",
            "strng": "string", "interger": "integer", "datetime": "string", "decimal": "number", "enum": "string",
        }.items()
    ),
    *(({"type": word}, f"the type .{word}.*leave 'type' out to accept every value") for word in ("any", "Any")),
    ({"type": "foo"}, "the type .foo., which does not exist; use string, integer"),
    ({"type": []}, "names no type"),
    ({"type": 3}, "the type 3, which does not exist"),
    ({"type": ["string", "float"]}, "did you mean 'number'"),
    ({"type": "array", "items": {"type": "dict"}}, "did you mean 'object'"),
    ({"anyOf": [{"type": "str"}, {"type": "null"}]}, "did you mean 'string'"),
    ({"enum": "a"}, "has 'enum' with \"a\", which is not a list"),
    ({"properties": []}, "has 'properties' with .., which is not an object with schemas"),
    ({"items": 3}, "has 'items' with 3, which is not a schema"),
    ({"anyOf": {}}, "which is not a list of schemas"),
    ("string", "has \"string\" in 'properties' instead of a schema"),
    ({"properties": {"a": {}}, "required": "a"}, "which is not a list of names"),
    ({"dependentRequired": {"a": "b"}}, "which is not an object with lists of names"),
    ({"$ref": 3}, "which is not a string"),
    ({"nullable": "yes"}, "which is not true or false"),
    ({"$ref": "#/properties/s"}, "refers to itself without end"),
]  # fmt: skip
"""Schemas that are refused from a user and from a server, in the same words."""
OWN = [
    *(
        ({word: 1}, f"the unknown keyword {word!r}: did you mean '{re.escape(meant)}'")
        for word, meant in {
            "minimun": "minimum", "maxlength": "maxLength", "max_length": "maxLength", "tpye": "type", "enums": "enum",
            "requried": "required", "propertys": "properties", "property": "properties", "item": "items",
            "any_of": "anyOf", "multiple_of": "multipleOf", "patern": "pattern", "ref": "$ref", "Enum": "enum",
            "exclusive_minimum": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "regex": "pattern",
        }.items()
    ),
    ({"unevaluatedProperties": False}, "'unevaluatedProperties'.*: use 'additionalProperties'"),
    ({"dependencies": {"a": ["b"]}}, "'dependencies'.* it is 'dependentRequired' or"),
    ({"additionalItems": False}, "it is 'items', next to 'prefixItems'"),
    ({"exclusiveMinimum": True}, "has 'exclusiveMinimum' with true, which is not a number"),
    ({"minimum": "3"}, "has 'minimum' with \"3\", which is not a number"),
    ({"items": [{"type": "string"}]}, "it is 'prefixItems'"),
    ({"required": True}, "has 'required' with true.* list required properties in 'required' of their object"),
    ({"description": None}, "has 'description' with null, which is not a string"),
    ({"anyOf": []}, "which is not a list of schemas"),
    ({"$ref": "http://127.0.0.1/x"}, "refers to 'http://127.0.0.1/x', which is not in it"),
    ({"$ref": "#/$defs/gone"}, "refers to '#/.defs/gone', which is not in it"),
    ({"$ref": "#anchor"}, "refers to '#anchor', which is not in it"),
]  # fmt: skip
"""Schemas that are refused from a user, who can correct them, and accepted from a server."""
KEPT = [
    *({"type": "string", word: 1} for word in (
        "optional", "enumNames", "markdownDescription", "errorMessage", "propertyOrdering", "units", "ui:widget",
        "hint", "order", "visible", "allow_null", "secret", "strict", "cache_control", "label", "choices", "x-order",
    )),
    {}, True, {"type": ["string", "null"]}, {"$ref": "#/$defs/A"}, {"type": "string", "nullable": True},
    {"type": "string", "title": "T", "default": None, "examples": ["a"]},
]  # fmt: skip
"""Schemas that are accepted from both."""


@pytest.mark.parametrize(("schema", "says"), BOTH + OWN)
def test_a_faulty_schema_is_refused_by_its_name(schema: object, says: str) -> None:
    with pytest.raises(ValueError, match=f"tool 'wait': its schema .*{says}"):
        _own(schema)


@pytest.mark.parametrize(("schema", "says"), BOTH)
def test_a_schema_of_a_server_is_judged_alike(schema: object, says: str) -> None:
    with pytest.raises(ValueError, match=f"its schema .*{says}"):
        _of_server(schema)


@pytest.mark.parametrize("schema", KEPT + [schema for schema, _ in OWN])
def test_what_a_server_may_leave_unsaid_costs_no_tool(schema: object) -> None:
    _of_server(schema)


@pytest.mark.parametrize("schema", KEPT)
def test_an_unknown_keyword_is_an_annotation(schema: object) -> None:
    (one,) = _own(schema)
    assert one.parameters["properties"] == {"s": schema}


def test_a_schema_that_replaces_the_derived_one_is_checked() -> None:
    (one,) = _own({})
    with pytest.raises(ValueError, match="did you mean 'object'"):
        one.with_(parameters={"type": "dict"})
    with pytest.raises(ValueError, match="is of type 'array', but arguments must be an 'object'"):
        Toolbox(one).override("wait", parameters={"type": "array"}).current()
    with pytest.raises(TypeError, match=r"parameters is <class .*, not a JSON Schema; .*model_json_schema"):
        one.with_(parameters=BaseModel)


@pytest.mark.parametrize(
    ("schema", "given_", "found"),
    [
        ({"type": "string", "default": None}, None, None),
        ({"type": "string", "nullable": True}, None, None),
        ({"type": "integer", "nullable": True}, "null", None),
        ({"type": "integer", "nullable": True}, "3", 3),
        ({"type": "string", "nullable": True}, "null", "null"),
        ({"type": "string", "enum": ["a", "b"], "nullable": True}, None, None),
        ({"type": "string", "enum": ["a", "b"], "default": ""}, "", ""),
        ({"type": "integer", "minimum": 1, "default": 0}, 0, 0),
        ({"type": "integer", "default": ""}, "", ""),
        ({"type": "string", "default": 5.5}, 5.5, 5.5),
        ({"type": "boolean", "default": "false"}, "false", False),
        ({"$ref": "#/$defs/A", "nullable": True}, None, None),
        ({"anyOf": [{"type": "string"}], "default": None}, None, None),
        ({"properties": {"b": {"type": "string", "default": None}}}, {"b": None}, {"b": None}),
        ({"type": "array", "items": {"type": "string", "nullable": True}}, ["a", None], ["a", None]),
    ],
)
def test_a_schemas_own_default_and_null_where_it_says_so_are_accepted(schema: Any, given_: Any, found: Any) -> None:
    (one,) = _own(schema)
    for _ in range(2):
        given_ = one.validate({"s": given_})["s"]
        assert (given_, type(given_)) == (found, type(found))


@pytest.mark.parametrize(
    ("schema", "given_"),
    [
        ({"type": "string"}, None),
        ({"type": "string", "nullable": False}, None),
        ({"type": "string", "enum": ["a"], "default": "all"}, "x"),
        ({"type": "integer", "minimum": 1, "default": 0}, -1),
        ({"type": "string", "default": False}, 0.0),
    ],
)
def test_only_the_default_itself_is_accepted(schema: Any, given_: Any) -> None:
    (one,) = _own(schema)
    with pytest.raises(AgentError, match="'s' must be"):
        one.validate({"s": given_})


def test_a_default_that_does_not_fit_its_own_type_reaches_the_function() -> None:
    @tool
    def find(kind: Literal["a", "b"] = "", most: Annotated[int, Field(ge=1)] = 0, at: date = None) -> list[Any]:  # type: ignore[assignment]  # noqa: RUF013
        """Find."""
        return [kind, most, at]

    given_ = find.validate({"kind": "", "most": 0, "at": None})
    assert anyio.run(find.invoke, given_).output == ["", 0, None]
    with pytest.raises(AgentError, match="'most' must be at least 1, not -1"):
        find.validate({"most": -1})


def test_an_alias_is_the_name_for_models() -> None:
    @tool
    def send(from_: Annotated[str, Field(alias="from")], most: int = Field(default=3, alias="max-items")) -> list[Any]:
        """Send.

        Args:
            from_: the sender
            most: how many
        """
        return [from_, most]

    assert send.parameters["properties"] == {
        "from": {"type": "string", "description": "the sender"},
        "max-items": {"type": "integer", "description": "how many", "default": 3},
    }
    assert send.parameters["required"] == ["from"]
    assert anyio.run(send.invoke, send.validate({"from": "a"})).output == ["a", 3]
    assert anyio.run(send.invoke, send.validate({"from": "a", "max-items": "5"})).output == ["a", 5]
    with pytest.raises(AgentError, match="'from' is missing; 'from_' is unknown; it takes from, max-items"):
        send.validate({"from_": "a"})

    async def by_code() -> list[Any]:
        return [await send("a", 4), await send(from_="b", most=5), await send(**{"from": "c"})]

    assert anyio.run(by_code) == [["a", 4], ["b", 5], ["c", 3]]
