"""Copies of values of the state: equal to what `copy.deepcopy` makes, and nothing mutable is shared."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr, RootModel

from orchestrator.graph.isolation import isolated


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
