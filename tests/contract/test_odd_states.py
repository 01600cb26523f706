"""States of every kind: what goes in comes out the same for nodes, for readers without code, and years later."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    RootModel,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)

from orchestrator import Executor, Graph, Run, node
from orchestrator.errors import InvalidInput
from tests.contract.sample import Color, Sub
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class Number(enum.IntEnum):
    A = 1
    B = 2


class Flags(enum.Flag):
    A = 1
    B = 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    n: int = 0


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    n: str = ""


@dataclasses.dataclass
class Data:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str = "z"


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    value: T


class Tree(BaseModel):
    value: int = 0
    kids: list[Tree] = []


class Alias(BaseModel):
    mine: int = Field(0, alias="Mine")


class Computed(BaseModel):
    a: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class Numbers(RootModel[list[int]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


TYPES: dict[str, tuple[Any, Any, Any]] = {
    "enum": (Color, Color.RED, Color.BLUE),
    "int enum": (Number, Number.A, Number.B),
    "flag": (Flags, Flags.A, Flags.A | Flags.B),
    "datetime": (dt.datetime, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2021, 1, 1, 1, 2, 3, 456)),
    "date": (dt.date, dt.date(2020, 1, 1), dt.date(2021, 1, 1)),
    "time": (dt.time, dt.time(1), dt.time(2, 3)),
    "timedelta": (dt.timedelta, dt.timedelta(1), dt.timedelta(microseconds=3)),
    "decimal": (decimal.Decimal, decimal.Decimal("1.10"), decimal.Decimal("2.50000000000000000001")),
    "bytes": (bytes, b"a", b"bc"),
    "uuid": (uuid.UUID, uuid.UUID(int=1), uuid.UUID(int=2)),
    "path": (pathlib.Path, pathlib.Path("a"), pathlib.Path("/b")),
    "set": (set[int], {1}, {3, 1, 2}),
    "frozenset": (frozenset[str], frozenset("a"), frozenset("ba")),
    "set of enums": (set[Color], set(), {Color.RED, Color.BLUE}),
    "tuple": (tuple[int, str], (1, "a"), (2, "b")),
    "long tuple": (tuple[int, ...], (), (1, 2)),
    "named tuple": (Pair, Pair(1), Pair(2, "x")),
    "dataclass": (Data, Data(1), Data(2, [3])),
    "model": (Sub, Sub(a=1), Sub(a=2, days=[dt.date(2020, 1, 1)])),
    "optional model": (Sub | None, None, Sub(a=1)),
    "union": (int | str, 1, "1"),
    "union of numbers": (int | float, 1, 1.0),
    "union of models": (Cat | Dog, Cat(), Dog(n="x")),
    "tagged union": (Annotated[Cat | Dog, Field(discriminator="kind")], Cat(), Dog(n="y")),
    "generic": (Box[int], Box[int](value=1), Box[int](value=2)),
    "recursive": (Tree, Tree(), Tree(value=1, kids=[Tree(value=2)])),
    "alias": (Alias, Alias(Mine=1), Alias(Mine=2)),
    "computed": (Computed, Computed(), Computed(a=3)),
    "root model": (Numbers, Numbers([1]), Numbers([1, 2])),
    "open model": (Open, Open(), Open(a=2, more=3)),  # type: ignore[call-arg]
    "int keys": (dict[int, str], {1: "a"}, {2: "b", 10: "c"}),
    "enum keys": (dict[Color, int], {}, {Color.RED: 1}),
    "date keys": (dict[dt.date, int], {}, {dt.date(2020, 1, 1): 1}),
    "deque": (collections.deque[int], collections.deque(), collections.deque([1, 2])),
    "big int": (int, 1, 2**100),
    "any": (Any, None, {"a": [1, None, "x", True, 1.5]}),
    "pattern": (re.Pattern, re.compile("a"), re.compile("b+")),
    "address": (ipaddress.IPv4Address, ipaddress.IPv4Address("1.1.1.1"), ipaddress.IPv4Address("2.2.2.2")),
    "url": (HttpUrl, HttpUrl("http://a"), HttpUrl("http://b")),
    "fraction": (fractions.Fraction, fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "sets in lists": (list[set[str]], [], [{"b", "a"}, {"c"}]),
    "bool or int": (int | bool, 1, True),
    "odd text": (str, "", "\x00 😀 é \u2028 </script> \\ \" '"),
    "none literal": (Literal["a", 1] | None, "a", None),
    "text annotation": ("list[int]", [], [1]),
}


async def told(url: str, graph: Graph, given: Any = None) -> Run:
    """Run a graph, and see that whoever reads it, with its code or without, sees the same."""
    async with Executor(url, graphs=[graph]) as ex:
        run = await ex.start(graph, given)
        loaded = await ex.load(run.run_id)
        assert loaded.values == run.values
        history = [point.values for point in await ex.history(run.run_id) if point.outcome]
    async with Executor(url) as ex:
        without = await ex.load(run.run_id)
        assert without.values == run.values
        assert [point.values for point in await ex.history(run.run_id) if point.outcome] == history
        assert without.state is not None
    return run


@pytest.mark.parametrize("many", sized([[*TYPES][place::4] for place in range(4)], [[what] for what in TYPES]))
async def test_values_of_every_type_come_back_as_they_were(many: list[str], tmp_path: pathlib.Path) -> None:
    """A state with one field of a type; on every change, with fields of many types."""
    annotations, first, second = ({what.replace(" ", "_"): TYPES[what][part] for what in many} for part in range(3))
    fields: dict[str, Any] = {name: (annotation, ...) for name, annotation in annotations.items()}
    state = create_model("State", **fields, n=(int, 0))
    seen: list[Any] = []
    graph = Graph(
        name="g", state=state, edges="START -> write -> look -> END",
        nodes={
            "write": node(effect="pure")(lambda state: second),
            "look": node(effect="pure")(lambda state: seen.append(state)),
        },
    )  # fmt: skip
    run = await told(f"sqlite:///{tmp_path}/runs.db", graph, first)
    assert run.status == "completed", run.error
    for found in (seen[0], run.state):
        for name, value in second.items():
            assert (getattr(found, name), type(getattr(found, name))) == (value, type(value)), name


def chain(state: type[BaseModel], *updates: Any) -> Graph:
    nodes = {
        f"n{place}": node(effect="pure")(update if callable(update) else lambda state, update=update: update)
        for place, update in enumerate(updates)
    }
    return Graph(name="g", state=state, nodes=nodes, edges=f"START -> {' -> '.join(nodes)} -> END")


class Before(BaseModel):
    a: int = 1
    words: list[str] = []

    @field_validator("a", mode="before")
    @classmethod
    def _up(cls, value: Any) -> Any:
        return int(value) + 1

    @field_validator("words", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return value.split(",")  # of what is read back, a list, this would raise


async def test_field_validators_see_what_comes_in_once(tmp_path: pathlib.Path) -> None:
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(Before, {"a": 3, "words": "x,y"}, {"a": 7}))
    assert run.values == {"a": 8, "words": ["x", "y"]}
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(Before, None), {"a": 3, "words": "x,y"})
    assert run.values == {"a": 4, "words": ["x", "y"]}
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(Before, None))
    assert run.values == {"a": 1, "words": []}  # of defaults too, as in pydantic, they see nothing


class Lossy(BaseModel):
    a: int = 1

    @field_serializer("a")
    def _hide(self, value: int) -> str:
        return f"{value} of them"


class Missing(BaseModel):
    a: int = Field(exclude=True)


class Growing(BaseModel):
    a: int = 1

    @field_validator("a")
    @classmethod
    def _up(cls, value: int) -> int:
        return value + 1


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (Lossy, Lossy(a=2), "cannot be read back"),
        (Missing, Missing(a=2), "cannot be read back"),
        (Growing, Growing(a=2), "is read back as"),
        (dict[tuple[int, int], int], {(1, 2): 3}, "cannot be read back"),
        (bytes, b"\xff", "ser_json_bytes='base64'"),
        (float, float("nan"), "not a number that JSON can represent"),
        (list[str], ["\ud800"], "surrogate"),
        (dict[str, str], {"": "\ud800"}, "surrogate"),
        (Callable[[int], int], abs, "cannot be written as JSON"),
        (Any, object(), "cannot be written as JSON"),
    ],
)
async def test_what_would_not_come_back_is_refused_before_it_is_journaled(
    annotation: Any, value: Any, words: str, tmp_path: pathlib.Path
) -> None:
    state = create_model("State", value=(annotation | None, None))
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(state, {"value": value}))
    assert run.status == "failed"
    assert run.error.type == "InvalidUpdate"
    assert words in run.error.message
    with pytest.raises(InvalidInput, match=re.escape(words)):
        await chain(state, None).run({"value": value})


async def test_bytes_of_any_kind_with_base64(tmp_path: pathlib.Path) -> None:
    class State(BaseModel):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        value: bytes = b""

    run = await told(
        f"sqlite:///{tmp_path}/runs.db", chain(State, {"value": b"\xff\x00"}, lambda state: {"value": state.value * 2})
    )
    assert run.state.value == b"\xff\x00\xff\x00"


class Broken(BaseModel):
    low: int = 0

    @model_validator(mode="after")
    def _check(self) -> Broken:
        if self.low:
            raise RuntimeError("the validator broke")
        return self


async def test_a_validator_that_breaks_fails_the_run_and_does_not_leave_it_behind(tmp_path: pathlib.Path) -> None:
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(Broken, {"low": 1}))
    assert run.status == "failed"
    assert "RuntimeError: the validator broke" in run.error.message


class Empty(BaseModel):
    pass


class Factory(BaseModel):
    a: int = 2
    b: int = Field(default_factory=lambda data: data["a"] * 2)
    c: str = Field(default_factory=lambda: uuid.uuid4().hex)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date = dt.date(2020, 1, 1)
    seen: set[int] = set()
    pair: tuple[int, ...] = ()


class Odd(BaseModel):
    """Fields with names that mean something elsewhere."""

    values: list[int] = []
    fields: int = 0
    update: int = 0
    ops: int = 0
    name: str = ""
    title: str = ""
    default: int = 0
    type: str = "x"
    properties: dict[str, int] = {}
    item: int = 0
    state: int = 0


STRICT = {"day": dt.date(2021, 1, 1), "seen": {2, 1}, "pair": (1,)}
ODD = {"name": "n", "type": "t", "properties": {"a": 1}, "update": 1, "state": 2, "item": 3}


@pytest.mark.parametrize(
    ("state", "updates", "given", "values"),
    [
        (Empty, [None], {}, {}),
        (Strict, [STRICT], {}, {"day": "2021-01-01", "seen": [1, 2], "pair": [1]}),
        (Box[int], [lambda state: {"value": state.value + 1}], {"value": "3"}, {"value": 4}),
        (Odd, [ODD], {"values": [1]}, {**Odd().model_dump(), **ODD, "values": [1]}),
    ],
)
async def test_odd_states(state: Any, updates: list[Any], given: Any, values: Any, tmp_path: pathlib.Path) -> None:
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(state, *updates), given)
    assert run.status == "completed", run.error
    assert run.values == values


async def test_factories_of_defaults_are_asked_once_for_each_run(tmp_path: pathlib.Path) -> None:
    runs = [await told(f"sqlite:///{tmp_path}/runs.db", chain(Factory, {"a": 1}), {"a": 5}) for _ in range(2)]
    assert [(run.values["a"], run.values["b"]) for run in runs] == [(1, 10), (1, 10)]
    assert runs[0].values["c"] != runs[1].values["c"]
    assert chain(Factory, None).structure == chain(Factory, None).structure
