"""Copies of values of the state: equal to what `copy.deepcopy` makes, and nothing mutable is shared."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, field_validator, model_validator

from orchestrator.graph import isolation
from orchestrator.graph.isolation import collector_waits, grown, isolated, isolation_of, json_copy
from orchestrator.graph.state import StateSchema


class Line(BaseModel):
    role: str = ""
    text: Any = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    inner: Line | None = None


class Hidden(BaseModel):
    n: int = 0
    _seen: list[int] = PrivateAttr(default_factory=list)
    _unset: int = PrivateAttr()

    @cached_property
    def twice(self) -> list[int]:
        return [self.n, self.n]


class Many(RootModel[list[Line]]):
    """A list that is a model."""


class Slotted(Line):
    __slots__ = ("aside",)


class Counted(Line):
    copies: int = 0

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Counted:
        return Counted(role=self.role, copies=self.copies + 1)


@dataclass
class Point:
    at: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Slim:
    at: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Fixed:
    at: tuple[int, ...] = ()


class Colour(Enum):
    RED = "red"


class Sealed(BaseModel):
    model_config = ConfigDict(frozen=True)
    words: tuple[str, ...] = ()


class Tree(BaseModel):
    """Frozen, as all that it holds, which is of its own kind."""

    model_config = ConfigDict(frozen=True)
    leaves: tuple[Tree, ...] = ()
    at: Fixed = Fixed()


class Holding(BaseModel):
    """Frozen, and holds what is not."""

    model_config = ConfigDict(frozen=True)
    words: list[str] = []
    above: tuple[Holding, ...] = ()


class Wide(Sealed):
    model_config = ConfigDict(extra="allow")


class Hiding(Sealed):
    _notes: list[str] = PrivateAttr(default_factory=list)


class Counting(Sealed):
    @cached_property
    def lengths(self) -> list[int]:
        return [len(word) for word in self.words]


@dataclass(frozen=True)
class Pinned:
    at: list[int] = field(default_factory=list)


def opened(value: Any) -> list[Any]:
    """A list that a frozen object gives to whoever reads it."""
    match value:
        case Holding(words=words, above=()):
            return words
        case Holding(above=(first, *_)):
            return opened(first)
        case Wide(notes=notes):
            return notes  # type: ignore[no-any-return]
        case Hiding():
            return value._notes
        case Counting():
            return value.lengths
        case _:
            return value.at  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Holding(words=["a"]), lambda: Holding(above=(Holding(words=["a"]),)),
        lambda: Wide.model_validate({"notes": ["a"]}), Hiding, lambda: Counting(words=("a",)), lambda: Pinned([1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 40])
def test_a_frozen_object_that_gives_a_list_is_copied_with_it(make: Callable[[], Any], count: int) -> None:
    values = [make() for _ in range(count)]
    for value in values:
        opened(value).append("known")
    before = [list(opened(value)) for value in values]
    for copy_of in (isolated(values), isolation_of(list[type(values[0])])(values)):  # type: ignore[misc]
        for one in copy_of:
            opened(one).append("spoilt")
    assert [opened(value) for value in values] == before


def test_a_frozen_object_of_frozen_ones_is_shared() -> None:
    assert isolation_of(Tree) is None
    assert isolation_of(tuple[Tree, ...]) is None
    tree = Tree(leaves=(Tree(), Tree()))
    assert isolated(tree) is tree
    many = [tree] * 40
    assert all(one is tree for one in isolated(many))


ItemT = TypeVar("ItemT")


class Box(BaseModel, Generic[ItemT]):
    inside: ItemT


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: list[int] = []


class Dog(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: Literal["dog"] = "dog"
    tricks: list[str] = Field(default=[], alias="knows")


class Home(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Checked(BaseModel):
    """Its validators put in what its types do not say, and must not run again."""

    model_config = ConfigDict(validate_assignment=True)
    text: str
    seen: list[str] = []

    @field_validator("text")
    @classmethod
    def louder(cls, text: str) -> str:
        return text + "!"

    @model_validator(mode="after")
    def listed(self) -> Checked:
        vars(self).update(seen=[*self.seen, self.text])
        return self


class Lazy(BaseModel):
    n: int = 0
    _notes: list[int] = PrivateAttr(default_factory=list)

    @cached_property
    def words(self) -> list[str]:
        return ["word"] * self.n


class Notes(list[Any]):
    """A list of a class of its own."""


def lazy(n: int, *, looked: bool) -> Lazy:
    made = Lazy(n=n)
    made._notes.append(n)
    if looked:
        made.words.append("last")  # the dictionaries of two instances then have other keys
    return made


numbers = st.integers(0, 3)
one_of_all_kinds = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=2),
    st.binary(max_size=2),
    st.sampled_from([Colour.RED, date(2026, 1, 1), datetime(2026, 1, 1), timedelta(1), Decimal("1.5"), Fixed((1,))]),
    st.builds(Line, role=st.text(max_size=2), text=st.lists(numbers, max_size=2)),
    st.builds(lambda n: Line.model_construct(role=[n], text={"not": ["what", "it says"]}), numbers),
    st.builds(lambda n: Open.model_validate({"inner": Line(text=[n]), "more": [n]}), numbers),
    st.builds(lazy, numbers, looked=st.booleans()),
    st.builds(lambda n: Sealed(words=("a",) * n), numbers),
    st.builds(lambda n: Box[list[int]](inside=[n]), numbers),
    st.builds(lambda n: Home(pet=Cat(lives=[n])), numbers),
    st.builds(lambda n: Home.model_validate({"pet": {"kind": "dog", "knows": ["sit"] * n}}), numbers),
    st.builds(lambda text: Checked(text=text), st.text(max_size=2)),
    st.builds(lambda n: Slotted(role="a", text=[n]), numbers),
    st.builds(lambda n: Counted(role="a", copies=n), numbers),
    st.builds(lambda n: Many([Line(text=[n])]), numbers),
    st.builds(lambda n: Point([n]), numbers),
    st.builds(lambda n: Slim([n]), numbers),
    st.builds(lambda n: Notes([[n]]), numbers),
    st.builds(lambda n: OrderedDict(a=[n]), numbers),
    st.builds(lambda n: deque([[n]]), numbers),
    st.sets(numbers, max_size=2),
    st.builds(bytearray, st.binary(max_size=2)),
    st.lists(st.lists(numbers, max_size=2), max_size=2),
    st.tuples(st.lists(numbers, max_size=2), numbers),
    st.dictionaries(st.text(max_size=2), st.lists(numbers, max_size=2), max_size=2),
)
"""Values of every kind that a state may hold, and of some that it should not."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Line, role=st.text(max_size=2), text=inner)
        | st.builds(lambda one, more: Open.model_validate({"inner": Line(text=one), "more": more}), inner, inner)
        | st.builds(lambda one: Many([Line(text=one)]), inner)
        | st.builds(lambda numbers: Point(numbers), st.lists(st.integers(0, 3), max_size=2))
    ),
    max_leaves=12,
)


def mutable_parts(value: object) -> list[object]:
    """Every mutable object in a value."""
    if isinstance(value, BaseModel):
        own = [vars(value), value.__pydantic_extra__ or {}, value.__pydantic_private__ or {}]
        inner = [part for fields in own for one in fields.values() for part in mutable_parts(one)]
        return [value, vars(value), value.__pydantic_fields_set__, *inner]
    if isinstance(value, Point):
        return [value, value.at]
    if isinstance(value, dict):
        return [value, *(part for one in value.values() for part in mutable_parts(one))]
    if isinstance(value, (list, tuple)):
        own = [value] if isinstance(value, list) else []
        return [*own, *(part for one in value for part in mutable_parts(one))]
    return []


@given(json_values)
def test_a_copy_equals_what_deepcopy_makes_and_shares_nothing_mutable(value: object) -> None:
    made = isolated(value)
    assert made == copy.deepcopy(value) == value
    assert type(made) is type(value)
    shared = {id(part) for part in mutable_parts(value)} & {id(part) for part in mutable_parts(made)}
    assert not shared


def test_private_attributes_cached_values_and_fields_that_were_set_are_copied_too() -> None:
    value = Hidden(n=2)
    value._seen.append(1)
    assert value.twice == [2, 2]
    made = isolated(value)
    made._seen.append(2)
    made.twice.append(3)
    assert (value._seen, value.twice, made.n) == ([1], [2, 2], 2)
    assert made.model_fields_set == {"n"}
    assert not hasattr(made, "_unset")


def test_a_class_with_its_own_copies_or_with_slots_is_copied_its_way() -> None:
    assert isolated(Counted(role="a")).copies == 1
    value = Slotted(role="a")
    assert isolated(value) == copy.deepcopy(value)


def test_a_subclass_that_forbids_changes_is_copied_without_them() -> None:
    class Strict(Line):
        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError("never")

    value = Strict(role="a", text=["b"])
    made = isolated(value)
    assert made == value
    assert made.text is not value.text


@given(st.lists(one_of_all_kinds, max_size=30) | one_of_all_kinds.flatmap(lambda one: st.just([one] * 9)))
def test_many_values_are_copied_together_as_each_of_them_is_alone(values: list[Any]) -> None:
    made = isolated(values)
    alone = [isolated(value) for value in values]
    deep = [copy.deepcopy(value) for value in values]
    assert made == alone == deep
    assert repr(made) == repr(alone) == repr(deep)
    assert [type(one) for one in made] == [type(value) for value in values]
    for one, value in zip(made, deep, strict=True):
        if isinstance(value, BaseModel):
            assert one.model_fields_set == value.model_fields_set
            assert one.__pydantic_private__ == value.__pydantic_private__
            assert one.__pydantic_extra__ == value.__pydantic_extra__
            assert one.model_dump(warnings=False) == value.model_dump(warnings=False)


def spoil(value: Any) -> None:
    """Change everything mutable in a value, from the inside out."""
    if isinstance(value, BaseModel):
        if value.model_config.get("frozen"):
            return
        for part in (vars(value), value.__pydantic_extra__, value.__pydantic_private__):
            for one in (part or {}).values():
                spoil(one)
        for name in type(value).model_fields:
            vars(value)[name] = "spoilt"
        value.model_fields_set.add("spoilt")
    elif isinstance(value, Point | Slim):
        value.at.append(99)
        value.at = [99]
    elif isinstance(value, dict):
        for one in value.values():
            spoil(one)
        value["spoilt"] = True
    elif isinstance(value, list | deque | tuple):
        for one in value:
            spoil(one)
        if not isinstance(value, tuple):
            value.append("spoilt")
    elif isinstance(value, set):
        value.add("spoilt")
    elif isinstance(value, bytearray):
        value.extend(b"spoilt")


def shape(value: Any) -> Any:
    """All that can be seen of a value, apart from it."""
    if isinstance(value, BaseModel):
        parts = vars(value), value.__pydantic_extra__, value.__pydantic_private__, sorted(value.model_fields_set)
        return type(value).__name__, [shape(part) for part in parts]
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list | tuple | deque):
        return [shape(one) for one in value]
    return repr(value)


@given(st.lists(one_of_all_kinds, max_size=30), st.booleans())
def test_whatever_is_done_to_a_copy_the_values_stay_what_they_were(values: list[Any], twice: bool) -> None:
    before = shape(values)
    made = isolated(grown(None, values) if twice else values)
    assert shape(made) == shape(copy.deepcopy(values))
    spoil(made)
    assert shape(values) == before
    assert shape(isolated(values)) == shape(copy.deepcopy(values))


deep_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=25,
)


@given(deep_json)
def test_what_came_from_json_is_copied_as_any_value_is(value: Any) -> None:
    made = json_copy(value)
    assert made == isolated(value) == value
    assert shape(made) == shape(value)
    assert not {id(part) for part in mutable_parts(value)} & {id(part) for part in mutable_parts(made)}


def test_json_that_is_nested_deeper_than_is_stored_today_is_copied_too() -> None:
    value: list[Any] = []
    for _ in range(280):
        value = [value]
    made = json_copy(value)
    assert made == value
    assert made[0] is not value[0]


def gather(old: Any, new: Any) -> Any:
    return bytearray(b"a")


class Gathers(BaseModel):
    x: Annotated[Any, gather] = None


def test_what_a_reducer_of_the_users_returns_need_not_be_json() -> None:
    schema = StateSchema.of(Gathers)
    values = schema.apply(schema.decode(schema.initial({})), {"x": 1}, {})
    schema.view(values).x.extend(b"b")
    assert values == {"x": bytearray(b"a")}


def called(work: Callable[[], object]) -> int:
    """How many functions of Python are called, but for those that are told of garbage being collected."""
    count, collects = 0, gc.isenabled()

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return count


KINDS: dict[str, Callable[[int], Any]] = {
    "models": lambda n: Line(role="a", text="b"),
    "models with lists": lambda n: Line(role="a", text=[n, [n]]),
    "models of models": lambda n: Open(inner=Line(text="a")),
    "dictionaries": lambda n: {"a": n, "b": {"c": [n]}},
    "lists": lambda n: [n, [n]],
    "frozen models": lambda n: Sealed(words=("a",)),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_ten_times_as_many_items_of_a_kind_are_copied_in_as_many_calls(make: Callable[[int], Any]) -> None:
    few, many = [make(n) for n in range(30)], [make(n) for n in range(300)]
    isolated(few)  # what is looked up once is known
    # Some of what is copied together is written as comprehensions, which are calls of their own.
    assert called(lambda: isolated(many)) == called(lambda: isolated(few))


EACH: dict[str, Callable[[], Any]] = {
    **{name: lambda make=make: make(1) for name, make in KINDS.items()},
    "extra fields": lambda: Open.model_validate({"more": [1], "inner": {"text": [2]}}),
    "private attributes and what was looked up": lambda: lazy(2, looked=True),
    "tuples of lists": lambda: ([1], [2]),
    "tuples of models": lambda: (Line(text=[1]), 2),
    "generic models": lambda: Box[list[int]](inside=[1]),
    "models of a union": lambda: Home(pet=Cat(lives=[1])),
    "root models": lambda: Many([Line(text=[1])]),
    "dataclasses": lambda: Point([1]),
    "dataclasses with slots": lambda: Slim([1]),
    "lists of a class of its own": lambda: Notes([[1]]),
    "ordered dictionaries": lambda: OrderedDict(a=[1]),
    "deques": lambda: deque([[1]]),
    "sets": lambda: {1},
    "bytes that can be changed": lambda: bytearray(b"a"),
}


@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize("make", EACH.values(), ids=EACH)
def test_a_copy_that_is_changed_changes_nothing_of_a_kind(make: Callable[[], Any], count: int) -> None:
    values = [make() for _ in range(count)]
    before = shape(copy.deepcopy(values))
    spoil(isolated(values))
    assert shape(values) == before


def test_each_frozen_class_is_looked_at_once_however_many_others_hold_it() -> None:
    def nested(levels: int) -> type:
        kind: Any = Sealed
        for number in range(levels):
            fields = {"__annotations__": {"a": kind, "b": kind}, "__module__": __name__}
            kind = type(f"Level{number}", (Sealed,), fields)
        return kind  # type: ignore[no-any-return]

    few, many = nested(6), nested(12)
    assert (isolation_of(few), isolation_of(many)) == (None, None)
    assert called(lambda: isolation_of(many)) < 2.5 * called(lambda: isolation_of(few))


IN_CHILDREN = """
import gc, os
from orchestrator.graph.isolation import collector_waits

def collects_in_a_child():
    child = os.fork()
    if not child:
        os._exit(gc.isenabled())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

with collector_waits(10_000):
    print(collects_in_a_child(), gc.isenabled())
print(collects_in_a_child(), gc.isenabled())
gc.disable()
with collector_waits(10_000):
    print(collects_in_a_child(), gc.isenabled())
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of this system have no forks")
def test_a_fork_of_the_process_collects_although_a_thread_of_its_parent_copies_many_values() -> None:
    """That thread is not there to have the collector go on."""
    done = subprocess.run([sys.executable, "-c", IN_CHILDREN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False", "1", "True", "0", "False"]


@pytest.mark.full
def test_the_collector_looks_at_many_copies_once_and_is_left_as_it_was() -> None:
    many = [Line(text=[n]) for n in range(20 * isolation._VERY_MANY)]
    collections = 0

    def note(phase: str, _info: object) -> None:
        nonlocal collections
        collections += phase == "start"

    gc.collect()
    gc.callbacks.append(note)
    try:
        made = isolated(many)
        assert collections <= 5
    finally:
        gc.callbacks.remove(note)
    assert made == many
    assert gc.isenabled()
    gc.disable()
    try:
        isolated(many)
        assert not gc.isenabled()
        with pytest.raises(KeyError), collector_waits(len(many)):
            raise KeyError
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(KeyError), collector_waits(len(many)):
        raise KeyError
    assert gc.isenabled()
