"""State schemas: what values may be, how updates are taken, and that nodes cannot reach the kernel's values."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, field_validator, model_validator

from orchestrator import ToolCall
from orchestrator.errors import GraphError, InvalidInput, InvalidUpdate, SecretInState
from orchestrator.graph import StateSchema, add, append, extend, local, merge, replace, union
from orchestrator.models.messages import user


class Note(BaseModel):
    model_config = ConfigDict(frozen=True)
    text: str
    at: datetime = datetime(2026, 1, 1)


class Draft(BaseModel):
    words: list[str] = []


def biggest(old: int, new: int) -> int:
    return max(old, new)


class State(BaseModel):
    topic: str
    score: float = 0
    notes: Annotated[list[Note], append] = []
    log: Annotated[list[str], extend] = []
    count: Annotated[int, add] = 0
    facts: Annotated[dict[str, int], merge] = {}
    tags: Annotated[set[str], union] = set()
    best: Annotated[int, biggest] = 0
    scratch: Annotated[str, local] = ""
    draft: Draft = Draft()
    anything: JsonValue = None


schema = StateSchema.of(State)


def step(values: dict[str, object], update: dict[str, object]) -> dict[str, object]:
    return schema.apply(values, *schema.encode_update(update))


@pytest.fixture
def values() -> dict[str, object]:
    return schema.decode(schema.initial({"topic": "graphs"}))


# -- the start --------------------------------------------------------------------------------------------------


def test_the_start_state_is_whole_and_plain_json() -> None:
    start = schema.initial({"topic": "graphs", "notes": [{"text": "a"}]})
    assert start["topic"] == "graphs"
    assert start["notes"] == [{"text": "a", "at": "2026-01-01T00:00:00"}]
    assert start["tags"] == []
    assert json.loads(json.dumps(start)) == start


def test_every_fault_of_an_input_is_named() -> None:
    with pytest.raises(InvalidInput) as raised:
        schema.initial({"topc": "x", "score": "high"})
    message = str(raised.value)
    assert "there is no field 'topc'" in message
    assert "topic: field required" in message
    assert "score: input should be a valid number" in message


# -- updates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "updates", "result"),
    [
        ("score", [0.5, 1], 1.0),
        ("log", [["a"], ["b", "c"]], ["a", "b", "c"]),
        ("count", [1, 2], 3),
        ("facts", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ("tags", [{"x"}, {"y", "x"}], {"x", "y"}),
        ("best", [3, 2], 3),
        ("scratch", ["a", "b"], "b"),
        ("notes", [{"text": "a"}, Note(text="b")], [Note(text="a"), Note(text="b")]),
        ("notes", [Note(text="a"), extend([Note(text="b"), {"text": "c"}])], [Note(text=t) for t in "abc"]),
        ("notes", [Note(text="a"), replace([Note(text="b")])], [Note(text="b")]),
        ("count", [5, replace(1)], 1),
        ("log", [["a"], extend(["b"])], ["a", "b"]),
    ],
)
def test_updates(values: dict[str, object], field: str, updates: list[object], result: object) -> None:
    for update in updates:
        values = step(values, {field: update})
    assert values[field] == result


def test_an_update_changes_no_earlier_values(values: dict[str, object]) -> None:
    before = schema.dump(values)
    step(values, {"notes": Note(text="a"), "log": ["a"], "facts": {"a": 1}, "tags": {"a"}, "count": 1})
    assert schema.dump(values) == before


def test_an_update_is_journaled_as_json_with_what_is_unusual_about_it() -> None:
    update, ops = schema.encode_update({"tags": {"b", "a"}, "notes": extend([]), "count": replace(0), "topic": "x"})
    assert update == {"tags": ["a", "b"], "notes": [], "count": 0, "topic": "x"}
    assert ops == {"notes": "extend", "count": "replace"}


def test_none_is_an_update_of_nothing() -> None:
    assert schema.encode_update(None) == ({}, {})


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"scor": 1}, "there is no field 'scor'"),
        ({"score": "x"}, "field 'score': input should be a valid number, unable to parse string as a number, got 'x'"),
        ({"score": math.nan}, "field 'score': nan is not a number that JSON can represent"),
        ({"topic": "\ud800"}, "field 'topic': the text contains an unpaired surrogate"),
        ({"notes": [Note(text="a")]}, "field 'notes': input should be a valid dictionary or instance of Note"),
        ({"score": extend([1])}, "field 'score': extend() is for fields with the reducer append or extend"),
        ({"anything": math.inf}, "field 'anything': inf is not a number that JSON can represent"),
        ({"facts": {"a": "x"}}, "field 'facts': a: input should be a valid integer"),
    ],
)
def test_an_update_that_does_not_fit_is_refused(update: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidUpdate) as raised:
        schema.encode_update(update)
    assert message in str(raised.value)


@pytest.mark.parametrize("value", [math.nan, {"a": [math.inf]}, [(-math.inf,)], Note.model_construct(text=math.nan)])
def test_a_number_that_json_cannot_say_is_refused_also_where_any_type_goes(value: object) -> None:
    class Loose(BaseModel):
        any: Any = None

    with pytest.raises(InvalidUpdate, match="is not a number that JSON can represent"):
        StateSchema.of(Loose).encode_update({"any": value})


def test_a_value_without_an_end_is_refused() -> None:
    class Loose(BaseModel):
        any: Any = None

    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InvalidUpdate, match="field 'any': it is nested too deeply, or contains itself"):
        StateSchema.of(Loose).encode_update({"any": circle})


def test_all_faults_of_an_update_are_in_one_report() -> None:
    with pytest.raises(InvalidUpdate, match=r"'a'.*'count'"):
        schema.encode_update({"a": 1, "count": "x"})


def test_what_a_node_does_with_its_update_later_is_not_seen(values: dict[str, object]) -> None:
    mine = {"list": [1]}
    update, _ops = schema.encode_update({"anything": mine, "facts": (facts := {"a": 1})})
    mine["list"].append(2)
    facts["b"] = 2
    assert update == {"anything": {"list": [1]}, "facts": {"a": 1}}


def test_field_validators_and_constraints_of_the_class_hold() -> None:
    class Strict(BaseModel):
        name: str = ""
        size: Annotated[int, Field(gt=0)] = 1

        @field_validator("name")
        @classmethod
        def _lower(cls, name: str) -> str:
            return name.lower()

    strict = StateSchema.of(Strict)
    assert strict.encode_update({"name": "ABC"})[0] == {"name": "abc"}
    with pytest.raises(InvalidUpdate, match="greater than 0"):
        strict.encode_update({"size": 0})


def test_validators_of_the_whole_state_run_only_when_it_is_checked() -> None:
    class Ordered(BaseModel):
        low: int = 0
        high: int = 0
        log: Annotated[list[str], append, Field(max_length=1)] = []

        @model_validator(mode="after")
        def _check(self) -> Ordered:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    ordered = StateSchema.of(Ordered)
    values = ordered.apply(ordered.decode(ordered.initial({})), *ordered.encode_update({"low": 1}))
    with pytest.raises(InvalidUpdate, match="state Ordered: value error, low is above high"):
        ordered.check(values)
    long = {"low": 0, "high": 0, "log": ["a", "b"]}
    with pytest.raises(InvalidUpdate, match="log: list should have at most 1 item"):
        ordered.check(long)
    schema.check({})  # nothing to run: nothing is looked at


# -- what nodes see ---------------------------------------------------------------------------------------------


def test_a_view_is_the_state_class(values: dict[str, object]) -> None:
    view = schema.view(values)
    assert view.__class__ is State
    assert view == State(topic="graphs")


def test_whatever_a_node_does_to_its_view_stays_there(values: dict[str, object]) -> None:
    values = step(values, {"notes": Note(text="a"), "facts": {"a": 1}, "anything": {"deep": [1]}, "log": ["a"]})
    before = json.dumps(schema.dump(values))
    view = schema.view(values)
    view.topic = "other"
    view.notes.clear()
    view.facts["b"] = 2
    view.tags.add("x")
    view.log.append("b")
    view.draft.words.append("x")
    view.anything["deep"].append(2)
    assert json.dumps(schema.dump(values)) == before


def test_a_view_with_reads_shows_those_fields_only(values: dict[str, object]) -> None:
    view = schema.view(values, frozenset({"topic", "count"}))
    assert (view.topic, view.count) == ("graphs", 0)
    assert isinstance(view, State)
    with pytest.raises(AttributeError, match=r"this node reads count, topic, not 'score': add it to its reads="):
        _ = view.score


# -- secrets ----------------------------------------------------------------------------------------------------


def test_a_secret_in_a_field_s_type_is_refused() -> None:
    class Inner(BaseModel):
        key: SecretStr

    class Outer(BaseModel):
        inner: list[Inner] = []

    with pytest.raises(SecretInState, match="field 'inner' of state Outer is a secret: pass it in deps"):
        StateSchema.of(Outer)


@pytest.mark.parametrize("value", [SecretStr("k"), {"a": [SecretStr("k")]}])
def test_a_secret_in_a_value_is_refused(value: Any) -> None:
    class Loose(BaseModel):
        any: Any = None
        text: str = ""

    loose = StateSchema.of(Loose)
    for field in ("any", "text"):
        with pytest.raises(SecretInState, match=f"field '{field}'"):
            loose.encode_update({field: value})
    with pytest.raises(SecretInState):
        loose.initial({"any": value})


# -- reducers ---------------------------------------------------------------------------------------------------


def test_a_field_takes_one_reducer() -> None:
    class Two(BaseModel):
        xs: Annotated[list[str], append, extend] = []

    class Both(BaseModel):
        xs: Annotated[list[str], append, local] = []

    with pytest.raises(GraphError, match=r"field 'xs' of state Two names more than one reducer \(append, extend\)"):
        StateSchema.of(Two)
    with pytest.raises(GraphError, match=r"more than one reducer \(append, local\): keep one"):
        StateSchema.of(Both)


def test_a_reducer_wants_its_kind_of_field() -> None:
    class Odd(BaseModel):
        xs: Annotated[str, append] = ""

    with pytest.raises(GraphError, match="field 'xs' of state Odd has the reducer append, which needs a list"):
        StateSchema.of(Odd)


@pytest.mark.parametrize(
    "kind", [Iterable, Iterable[int], list[Iterable[int]], Iterable[int] | None, Generator[int, None, None]]
)
def test_a_field_whose_values_can_be_read_once_only_is_refused(kind: Any) -> None:
    class Inner(BaseModel):
        items: kind

    class Outer(BaseModel):
        inner: Inner

    for name, owner in (("items", Inner), ("inner", Outer)):
        words = f"field '{name}' of state {owner.__name__} is, or holds, an Iterable, .*: use a list or a Sequence"
        with pytest.raises(GraphError, match=words):
            StateSchema.of(owner)


def test_what_is_known_of_fields() -> None:
    facts = {name: (f.reducer, f.plain, f.local, f.portable) for name, f in schema.fields.items()}
    assert facts["topic"] == ("", True, False, True)
    assert facts["notes"] == ("append", False, False, True)
    assert facts["scratch"] == ("", True, True, True)
    assert facts["best"] == ("tests.graph.test_state:biggest", False, False, False)


def test_a_reducer_that_changes_what_it_is_given_changes_nothing_else() -> None:
    def push(old: list[int], new: int) -> list[int]:
        old.append(new)
        return old

    class Pushed(BaseModel):
        xs: Annotated[list[int], push] = []

    pushed = StateSchema.of(Pushed)
    first = pushed.decode(pushed.initial({"xs": [1]}))
    second = pushed.apply(first, *pushed.encode_update({"xs": 2}))
    assert (first, second) == ({"xs": [1]}, {"xs": [1, 2]})


def test_nor_does_one_that_changes_the_update_which_is_reduced_again_at_a_join() -> None:
    def gather(old: list[int], new: list[int]) -> list[int]:
        new.extend(old)
        return new

    class Gathered(BaseModel):
        xs: Annotated[list[int], gather] = []

    gathered = StateSchema.of(Gathered)
    update, ops = gathered.encode_update({"xs": [2]})
    first = gathered.decode(gathered.initial({"xs": [1]}))
    for _ in range(2):
        assert gathered.apply(first, update, ops) == {"xs": [2, 1]}
    assert (first, update) == ({"xs": [1]}, {"xs": [2]})


def test_what_a_reducer_gives_must_be_json() -> None:
    def odd(old: object, new: int) -> object:
        return math.inf

    class Odd(BaseModel):
        x: Annotated[float, odd] = 0

    found = StateSchema.of(Odd)
    with pytest.raises(InvalidUpdate, match="field 'x': the result of its reducer <closure>: inf is not a number"):
        found.reduced(found.apply({"x": 0.0}, *found.encode_update({"x": 1})), ["x"])


def test_add_of_what_json_cannot_add_is_not_portable() -> None:
    class Money(BaseModel):
        sum: Annotated[Decimal, add] = Decimal(0)

    money = StateSchema.of(Money)
    assert not money.fields["sum"].portable
    values = money.apply(money.decode(money.initial({})), *money.encode_update({"sum": Decimal("0.10")}))
    assert values == {"sum": Decimal("0.10")}
    assert money.reduced(values, ["sum"]) == {"sum": "0.10"}
    assert schema.reduced({"score": 1.0}, ["score"]) is None


# -- data -------------------------------------------------------------------------------------------------------

updates = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.text(max_size=3),
        "score": st.floats(allow_nan=False, allow_infinity=False),
        "notes": st.builds(lambda t: {"text": t}, st.text(max_size=2)) | st.builds(lambda: extend([{"text": "z"}] * 2)),
        "log": st.lists(st.text(max_size=2), max_size=2) | st.builds(replace, st.just(["r"])),
        "count": st.integers(-9, 9),
        "facts": st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2),
        "tags": st.sets(st.sampled_from("abcd"), max_size=3),
        "best": st.integers(0, 9),
    },
)


@given(st.lists(updates, max_size=6))
def test_a_fold_without_the_class_gives_the_same_json(steps: list[dict[str, object]]) -> None:
    bare = StateSchema.from_data(json.loads(json.dumps(schema.data())))
    assert bare.cls is None
    start = schema.initial({"topic": "x"})
    values, plain = schema.decode(start), bare.decode(start)
    for update in steps:
        encoded, ops = schema.encode_update(update)
        values, plain = schema.apply(values, encoded, ops), bare.apply(plain, encoded, ops)
        plain |= schema.reduced(values, encoded) or {}
    assert bare.dump(plain) == schema.dump(values)


def test_a_schema_without_its_class_says_the_same_data() -> None:
    bare = StateSchema.from_data(schema.data())
    assert bare.data() == schema.data()
    assert bare.fields == schema.fields
    assert bare.view(bare.decode({"topic": "x"})).topic == "x"
    assert bare.is_list("notes")
    assert not bare.is_list("tags")


INLINE = {
    "name": "Essay",
    "fields": {
        "topic": "str",
        "drafts": {"type": "list[str]", "reducer": "append", "default": []},
        "scores": {"type": "dict[str, float | None]", "default": {}, "description": "by judge"},
        "mine": {"type": "any", "reducer": "local", "default": None},
    },
}


def test_a_state_written_as_data_gets_its_class_anywhere() -> None:
    inline = StateSchema.from_data(INLINE)
    assert inline.initial({"topic": "x"}) == {"topic": "x", "drafts": [], "scores": {}, "mine": None}
    assert inline.data() == INLINE
    assert inline.fields["mine"].local
    values = inline.apply(inline.decode(inline.initial({"topic": "x"})), *inline.encode_update({"drafts": "a"}))
    assert inline.view(values).drafts == ["a"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("strr", "'strr' names no type (at strr): did you mean 'str'?"),
        ("list[str", "'list[str' names no type (at its end)"),
        ("dict[str]", "'dict[str]' names no type"),
        ("str; import os", "names no type (at ;)"),
        ("Literal", "'Literal' names no type (at its end)"),
        ("Literal[]", "names no type (at ])"),
        ("Literal['a'", "names no type (at its end)"),
        ("Literal[str]", "(at str): put strings in quotes"),
        ("Literal['a' 'b']", "names no type (at 'b')"),
        ("Literal[1.5]", "names no type"),
        ("'a'", "names no type (at 'a')"),
        ("Massage", "names no type (at Massage)"),
        ({"reducer": "append"}, "field 'x' of the state needs a type"),
        ({"type": "str", "kind": 1}, "field 'x' has no 'kind'"),
        ({"type": "str", "reducer": "apend"}, "field 'x' names reducer 'apend': did you mean 'append'?"),
        ({"type": "str", "reducer": "first"}, "field 'x' names reducer 'first': there are append, extend"),
        ({"type": "int", "default": "x"}, "field 'x' has a default that is not int"),
        ("lst[str]", "'lst[str]' names no type (at lst): did you mean 'list'?"),
        ("Literal[a]", "put strings in quotes"),
        ("Mesage", "did you mean 'Message'?"),
    ],
)
def test_a_state_that_is_written_wrong_says_where(field: object, message: str) -> None:
    with pytest.raises(GraphError) as raised:
        StateSchema.from_data({"fields": {"x": field}})
    assert message in str(raised.value)


def test_literals_messages_and_calls_are_types_of_states_that_are_written_as_data() -> None:
    data = {"name": "S", "fields": {
        "size": {"type": "Literal['s', 'm', -1, true] | None", "default": "s"},
        "messages": {"type": "list[Message]", "reducer": "append", "default": []},
        "pending": {"type": "list[ToolCall]", "default": []},
    }}  # fmt: skip
    schema = StateSchema.from_data(data)
    assert schema.data() == data
    assert schema.field("size").annotation == Literal["s", "m", -1, True] | None
    assert schema.initial({"size": "m"})["size"] == "m"
    with pytest.raises(InvalidInput, match="size"):
        schema.initial({"size": "l"})
    values = schema.decode(schema.initial({}))
    update = {"messages": user("hi"), "pending": [ToolCall(id="c", name="n", arguments={})]}
    values = schema.apply(values, *schema.encode_update(update))
    view = schema.view(values)
    assert view.messages == [user("hi")]
    assert view.pending[0].name == "n"


def test_code_named_by_data_is_not_imported_unless_asked_for() -> None:
    data = {"name": "S", "fields": {"n": {"type": "int", "reducer": "tests.graph.test_state:biggest", "default": 1}}}
    bare = StateSchema.from_data(data)
    assert not bare.fields["n"].portable
    assert bare.apply({"n": 1}, {"n": 5}, {}) == {"n": 1}  # what the reducer made is in the journal
    assert StateSchema.from_data(data, resolve=True).apply({"n": 1}, {"n": 5}, {}) == {"n": 5}
