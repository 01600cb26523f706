"""What a node gets as its state: an instance of the class that shares nothing mutable and copies what is read."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from orchestrator import Graph, Limits, append, node
from orchestrator.graph.state import StateSchema

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


class Part(BaseModel):
    words: list[str] = []
    extra: Any = None


class State(BaseModel):
    name: str = ""
    parts: list[Part] = []
    data: Any = None
    table: dict[str, list[int]] = {}
    seen: set[str] = set()


schema = StateSchema.of(State)


def values_of(data: object = None) -> dict[str, object]:
    return {"name": "n", "parts": [Part(words=["a"], extra=data)], "data": data, "table": {"k": [1]}, "seen": {"x"}}


def spoil(value: object) -> None:
    """Change everything mutable in a value."""
    if isinstance(value, list):
        for one in value:
            spoil(one)
        value.append("spoilt")
    elif isinstance(value, dict):
        for one in value.values():
            spoil(one)
        value["spoilt"] = True
    elif isinstance(value, set):
        value.add("spoilt")
    elif isinstance(value, BaseModel):
        for one in vars(value).values():
            spoil(one)


READS: dict[str, Callable[[State], object]] = {
    "attributes": lambda view: [view.parts, view.data, view.table, view.seen],
    "vars": vars,
    "iteration": lambda view: [value for _, value in view],
    "model_copy": lambda view: vars(view.model_copy()),
    "deep model_copy": lambda view: vars(view.model_copy(deep=True)),
    "copy": lambda view: vars(copy.copy(view)),
    "deepcopy": lambda view: vars(copy.deepcopy(view)),
    "model_dump": lambda view: view.model_dump(),
    "pickle": lambda view: vars(pickle.loads(pickle.dumps(view))),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@given(data=json_values)
def test_a_change_of_what_was_read_changes_nothing_else(read: Callable[[State], object], data: object) -> None:
    values, before = values_of(data), values_of(copy.deepcopy(data))
    found = read(schema.view(values))
    for one in found.values() if isinstance(found, dict) else found:  # type: ignore[attr-defined]
        spoil(one)
    assert values == before
    assert schema.view(values) == State(**before)


@given(data=json_values)
def test_a_view_equals_an_instance_of_the_class(data: object) -> None:
    values = values_of(data)
    plain = State(**copy.deepcopy(values))
    assert schema.view(values) == plain
    assert plain == schema.view(values)
    assert schema.view(values).model_dump() == plain.model_dump()
    assert schema.view(values).model_dump_json() == plain.model_dump_json()
    assert repr(schema.view(values)) == repr(plain)


def test_copies_of_a_view_are_instances_of_the_class_itself() -> None:
    view = schema.view(values_of())
    assert isinstance(view, State)
    assert view.__class__ is State
    for made in (view.model_copy(), copy.copy(view), copy.deepcopy(view), pickle.loads(pickle.dumps(view))):
        assert type(made) is State
    assert view.model_copy(update={"name": "other"}).name == "other"
    assert type(view)(name="m").name == "m"
    assert State.model_validate(view) is view


def test_fields_of_a_view_can_be_set_and_deleted() -> None:
    view = schema.view(values_of())
    view.parts = []
    assert view.parts == []
    assert view.model_dump()["parts"] == []
    del view.table
    assert not hasattr(view, "table")
    assert view.seen == {"x"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = view.nothing


LARGE: dict[str, Callable[[int], dict[str, object]]] = {
    "models": lambda n: {"parts": [Part(words=["a"]) for _ in range(n)]},
    "plain JSON": lambda n: {"data": [{"a": [number]} for number in range(n)]},
    "lists of numbers": lambda n: {"table": {str(number): [number] for number in range(n)}},
    "texts": lambda n: {"seen": {str(number) for number in range(n)}},
}


@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE)
def test_a_field_that_is_not_read_costs_nothing_however_much_it_holds(
    large: Callable[[int], dict[str, object]],
) -> None:
    def allocated(length: int) -> int:
        values = {**values_of(), **large(length)}
        tracemalloc.start()
        try:
            view = schema.view(values)
            assert (view.name, isinstance(view, State)) == ("n", True)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    allocated(1)  # what is made once for a class
    assert allocated(10_000) < allocated(100) + 1000


def test_a_field_that_is_read_twice_is_the_same_object() -> None:
    view = schema.view(values_of([1]))
    assert view.data is view.data
    assert view.parts is vars(view)["parts"]


def test_threads_that_read_a_field_at_the_same_time_get_one_copy() -> None:
    with ThreadPoolExecutor(8) as threads:
        for _ in range(50):
            view = schema.view({"parts": [Part(words=["a"]) for _ in range(50)]})
            found = list(threads.map(lambda _, view=view: view.parts, range(8)))
            assert all(one is found[0] for one in found)


def test_classes_with_private_attributes_cached_properties_and_checked_assignment() -> None:
    class Rich(BaseModel):
        model_config = ConfigDict(validate_assignment=True)
        items: list[list[int]] = []
        _count: int = PrivateAttr(default=3)

        @cached_property
        def total(self) -> int:
            return sum(map(sum, self.items))

        def model_post_init(self, context: Any) -> None:
            super().model_post_init(context)
            self._count += len(self.items)

    view = StateSchema.of(Rich).view({"items": [[1], [2]]})
    assert (view.total, view._count) == (3, 5)
    view.items = [["4"]]
    assert view.items == [[4]]
    assert pickle.loads(pickle.dumps(schema.view(values_of()))) == State(**values_of())


def test_a_class_that_refuses_subclasses_is_copied_at_once() -> None:
    class Final(BaseModel):
        items: list[list[int]] = []

        def __init_subclass__(cls, **options: Any) -> None:
            raise TypeError("no subclasses")

    values: dict[str, object] = {"items": [[1]]}
    view = StateSchema.of(Final).view(values)
    assert type(view) is Final
    view.items[0].append(2)
    assert values == {"items": [[1]]}


class Counted(BaseModel):
    """Counts how often one of its instances is copied."""

    number: int

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Counted:
        copies.append(self.number)
        return super().__deepcopy__(memo)


copies: list[int] = []


class Many(BaseModel):
    items: list[Counted] = []
    sums: Annotated[list[int], append] = []


@pytest.mark.anyio
async def test_a_branch_of_a_map_copies_its_own_item_only() -> None:
    @node(effect="pure")
    def begin(state: Many) -> None: ...

    @node(effect="pure")
    def double(state: Many, item: Counted) -> dict[str, object]:
        return {"sums": 2 * item.number}

    @node(effect="pure", join="all")
    def gather(state: Many) -> None: ...

    graph = Graph(
        name="mapped",
        state=Many,
        nodes={"begin": begin, "double": double, "gather": gather},
        edges="START -> begin\nbegin -> double : each items\ndouble -> gather -> END",
        output="sums",
        limits=Limits(steps=None),
    )
    copies.clear()
    run = await graph.run({"items": [{"number": number} for number in range(100)]})
    assert run.output == [2 * number for number in range(100)]
    assert len(copies) <= 200  # not the 100 * 100 of a copy of the list for each branch
