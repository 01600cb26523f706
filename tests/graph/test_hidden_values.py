"""Secrets and numbers without an end are refused wherever a value hides them, and no message quotes them."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections import OrderedDict, UserList, UserString, deque, namedtuple
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from types import GenericAlias
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Secret, SecretStr, SerializeAsAny, field_serializer

from orchestrator.errors import InvalidUpdate, SecretInState
from orchestrator.graph import StateSchema
from orchestrator.graph.codec import Codec, as_json
from orchestrator.values import Unfit

TEXT = "hunter2"
OLD_LIST, OLD_DICT, OLD_DEQUE, OLD_SEQUENCE = (getattr(typing, name) for name in ("List", "Dict", "Deque", "Sequence"))
SEQUENCES, MAPPINGS = GenericAlias(dict, (str, Sequence)), GenericAlias(list, (Mapping,))


class Base(BaseModel):
    model_config = ConfigDict(frozen=True)
    number: float = 1


class Login(Base):
    """As pydantic's documentation has it written with the secret in plain text."""

    password: SecretStr = SecretStr(TEXT)

    @field_serializer("password", when_used="json")
    def plain(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")

    @field_serializer("*", when_used="json", check_fields=False)
    def plain(self, value: Any) -> Any:
        return value.get_secret_value() if isinstance(value, SecretStr) else value


def loose(value: object) -> Loose:
    return Loose.model_validate({"a": value})


class Boxed(BaseModel):
    content: SerializeAsAny[Base]


class Known(Enum):
    LOGIN = Login()
    BARE = SecretStr(TEXT)
    WITHOUT_END = math.inf
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Point:
    at: Any


Pair = namedtuple("Pair", ("first", "second"))  # noqa: PYI024  fields of which nothing is said


class Token(Secret[str]):
    pass


def around(inner: Any) -> list[tuple[Any, Any]]:
    """Types and values that hold something."""
    return [
        (Any, inner), (Any, [inner]), (Any, (inner,)), (Any, deque([inner])), (Any, {"a": deque([[inner]])}),
        (Any, loose(inner)), (Any, Point(deque([inner]))), (Loose, loose(inner)),
        (dict[str, Loose], {"a": {"b": inner}}),
        (Any, {inner: 1}), (dict, {inner: 1}), (Any, {(inner,): 1}), (Hashable, Point(inner)), (object, deque([inner])),
        (list, [inner]), (list, deque([inner])), (tuple, (inner,)), (set, {inner}), (frozenset, {inner}),
        (dict, {"a": inner}), (Pair, Pair(1, inner)), (deque | None, deque([inner])),
        (deque, deque([inner])), (deque[Any], deque([inner])), (OrderedDict, OrderedDict(a=inner)),
        (Sequence, [inner]), (Sequence[Any], (inner,)), (Sequence, deque([inner])), (MutableSequence, [inner]),
        (Mapping, {"a": inner}), (MutableMapping, {"a": inner}), (Mapping[str, Any], {"a": inner}),
        (Mapping, {inner: 1}), (AbstractSet, {inner}), (Iterable, [inner]), (Iterable[Any], [inner]),
        (Generator, [inner]), (SEQUENCES, {"a": [inner]}), (MAPPINGS, [{"a": inner}]),
        (OLD_LIST, [inner]), (OLD_DICT, {"a": inner}), (OLD_DEQUE, deque([inner])), (OLD_SEQUENCE, [inner]),
    ]  # fmt: skip


SECRET = [
    *around(SecretStr(TEXT)), *around(Login()), *around(Secret(TEXT)), *around(Token(TEXT)),
    *around(Known.LOGIN), *around(Known.BARE),
    (Known, Known.LOGIN), (Known, Known.BARE), (Sequence[Base], [Login()]), (list[SerializeAsAny[Base]], [Login()]),
    (SerializeAsAny[Base], Login()), (Boxed, Boxed(content=Login())), (Annotated[Sequence, "a"], [Login()]),
    (list[Base], [Login()]), (Any, UserList([Login()])), (int, deque([Login()])), (int, {SecretStr(TEXT): 1}),
]  # fmt: skip
WITHOUT_END = [
    *around(math.nan), *around(-math.inf), *around(Base(number=math.inf)), *around(Known.WITHOUT_END),
    (Sequence[float | None], [math.nan]), (Sequence[Base], [Base(number=math.nan)]),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), SECRET)
def test_a_secret_is_refused_wherever_it_is(annotation: Any, value: Any) -> None:
    with pytest.raises(SecretInState, match=r"a secret must not enter the state: pass it in deps") as refused:
        Codec(annotation).encode(value)
    assert TEXT not in str(refused.value)


@pytest.mark.parametrize(("annotation", "value"), WITHOUT_END)
def test_a_number_without_an_end_is_refused_wherever_it_is(annotation: Any, value: Any) -> None:
    with pytest.raises(Unfit, match=r"(nan|inf) is not a number that JSON can represent"):
        Codec(annotation).encode(value)


@pytest.mark.parametrize("annotation", [Any, Sequence, Mapping, deque, SEQUENCES])
def test_inputs_and_updates_name_the_field(annotation: Any) -> None:
    kind = type("Filled", (BaseModel,), {"__annotations__": {"field": annotation}})
    schema = StateSchema.of(kind)
    inner = {"a": [Login()]} if annotation in (Mapping, SEQUENCES) else deque([Login()])
    for give in (schema.initial, schema.encode_update):
        with pytest.raises(SecretInState, match="field 'field'") as refused:
            give({"field": inner})
        assert TEXT not in str(refused.value)
    numbers = {"a": [math.nan]} if annotation in (Mapping, SEQUENCES) else deque([math.nan])
    with pytest.raises(InvalidUpdate, match="field 'field': nan is not a number"):
        schema.encode_update({"field": numbers})


@pytest.mark.parametrize("kind", [Secret[str], Token, list[Secret[int]], Annotated[Sequence[Token], "a"]])
def test_every_type_of_secrets_is_refused_in_a_state(kind: Any) -> None:
    with pytest.raises(SecretInState, match="field 'field' of state Filled is a secret"):
        StateSchema.of(type("Filled", (BaseModel,), {"__annotations__": {"field": kind}}))


def test_arguments_are_looked_through() -> None:
    for value in ({"args": deque([Login()])}, [{SecretStr(TEXT): 1}], [Known.LOGIN]):
        with pytest.raises(SecretInState):
            as_json(value, "the arguments")


def lazily(values: Iterable[object]) -> Iterable[object]:
    yield from values


MAKES_ITERATORS: list[Callable[[list[object]], object]] = [lazily, iter, lambda values: map(str, values), zip]


@pytest.mark.parametrize("make", MAKES_ITERATORS)
def test_what_can_be_read_only_once_is_refused_by_name(make: Callable[[list[object]], object]) -> None:
    for annotation, inside in ((Any, False), (Any, True), (Sequence, True), (deque, True)):
        value = make([Login()])
        name = type(value).__name__
        with pytest.raises(Unfit, match=rf"^{name}: it can be read only once; make a list of it$"):
            Codec(annotation).encode([value] if inside else value)
    with pytest.raises(Unfit, match="valid integer"):  # where no value of the kind fits, that is said
        Codec(int).encode(make([Login()]))


KEPT: list[tuple[Any, Any, Any, Any]] = [
    (deque, deque([1, "a"]), [1, "a"], deque([1, "a"])), (deque[Any], [1], [1], deque([1])),
    (Any, deque([1.5, None]), [1.5, None], [1.5, None]), (Sequence, [1, [2]], [1, [2]], [1, [2]]),
    (Mapping, {"a": {"b": 1}}, {"a": {"b": 1}}, {"a": {"b": 1}}), (MutableSequence, [1], [1], [1]),
    (AbstractSet, {1}, [1], frozenset({1})), (Any, Known.ONE, 1, 1), (Known, Known.ONE, 1, Known.ONE),
    (Any, {Known.ONE: deque([{}])}, {"1": [{}]}, {"1": [{}]}), (Any, {1.5: 2, None: 3}, {"1.5": 2, "None": 3}, None),
    (Any, loose([1]), {"a": [1]}, {"a": [1]}), (Loose, loose([1]), {"a": [1]}, loose([1])),
    (Boxed, Boxed(content=Base()), {"content": {"number": 1}}, Boxed(content=Base())),
    (OLD_LIST, [1], [1], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "written", "read"), KEPT)
def test_other_values_are_written_and_read_as_before(annotation: Any, value: Any, written: Any, read: Any) -> None:
    codec = Codec(annotation)
    assert codec.encode(value) == written
    found = codec.load(written)
    assert found == (written if read is None else read)
    assert read is None or type(found) is type(read)


@pytest.mark.parametrize("annotation", [Iterable, Iterable[Any], Iterable[int], Generator])
def test_an_iterable_is_written(annotation: Any) -> None:
    assert Codec(annotation).encode([1, 2]) == [1, 2]


@pytest.mark.parametrize("value", [UserString("text"), range(10**12), memoryview(b"text")])
def test_sequences_of_plain_items_are_not_walked_through(value: object) -> None:
    with pytest.raises(Unfit, match="it cannot be written as JSON"):
        Codec(Any).encode(value)


def holders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    plain = st.lists(st.integers() | st.text(max_size=3), max_size=2)
    lists = st.tuples(plain, inner, plain).map(lambda parts: [*parts[0], parts[1], *parts[2]])
    return (
        lists | lists.map(tuple) | lists.map(deque)
        | inner.map(lambda one: {"a": 1, "b": one}) | inner.map(lambda one: OrderedDict(a=one))
        | inner.map(lambda one: loose(one)) | inner.map(Point)
    )  # fmt: skip


@pytest.mark.full
@given(
    st.recursive(
        st.sampled_from([SecretStr(TEXT), Login(), Token(TEXT), Known.LOGIN, dict.fromkeys([Login()], 1)]), holders
    ),
    st.sampled_from([Any, object]),
)
def test_a_secret_is_refused_however_deep_it_is(value: Any, annotation: Any) -> None:
    for kind, given_value in ((annotation, value), *((kind, [value]) for kind in (list, Sequence, deque, Iterable)),
                              (Mapping, {"a": value}), (SEQUENCES, {"a": [value]})):  # fmt: skip
        with pytest.raises(SecretInState) as refused:
            Codec(kind).encode(given_value)
        assert TEXT not in str(refused.value)


@pytest.mark.full
@given(st.recursive(st.sampled_from([math.nan, math.inf, Known.WITHOUT_END, Base(number=math.nan)]), holders))
def test_a_number_without_an_end_is_refused_however_deep_it_is(value: Any) -> None:
    for kind, given_value in ((Any, value), *((kind, [value]) for kind in (list, Sequence, deque, Iterable)),
                              (Mapping, {"a": value})):  # fmt: skip
        with pytest.raises(Unfit, match="is not a number that JSON can represent"):
            Codec(kind).encode(given_value)
