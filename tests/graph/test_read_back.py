"""What a field takes is read back equal, by type as well, or is refused with what to do about it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import pathlib
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SerializeAsAny,
    computed_field,
    field_serializer,
    model_serializer,
)
from typing_extensions import TypedDict

from orchestrator.graph.codec import Codec
from orchestrator.models.messages import Message, ToolCall
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.values import Unfit

T = TypeVar("T")


class Base(BaseModel):
    text: str = ""


class Derived(Base):
    more: int = 1


class Twin(BaseModel):
    text: str = ""


class Tagged(BaseModel):
    kind: Literal["tagged"] = "tagged"
    text: str = ""


class Other(BaseModel):
    kind: Literal["other"] = "other"
    text: str = ""


class Hidden(BaseModel):
    token: str = Field("none", exclude=True)


class Sometimes(BaseModel):
    price: float = Field(1.0, exclude_if=lambda price: price < 0)


class Private(BaseModel):
    _tries: int = PrivateAttr(0)
    _lock: object = PrivateAttr(default_factory=object)


class Rounded(BaseModel):
    price: float = 0  # an integer, as people write it

    @field_serializer("price")
    def _round(self, price: float) -> float:
        return round(price, 2)


class Short(BaseModel):
    text: str = ""
    left_out: int = 0

    @model_serializer
    def _short(self) -> dict[str, object]:
        return {"text": self.text}


class Renamed(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    name: str = Field("x", serialization_alias="title")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int = 1


class Area(Open):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.a * 2


class Anything(BaseModel):
    data: Any = None
    pet: Base | Twin | None = None


class Box(BaseModel, Generic[T]):
    item: T


class Bases(RootModel[list[Base]]):
    pass


class Tree(BaseModel):
    text: str = ""
    data: dict[str, Any] = {}
    below: list[Tree] = []
    pet: Base | None = None


class Level(enum.IntEnum):
    LOW = 1


class Colour(enum.StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: Any


class Options(TypedDict, total=False):
    data: Any
    pet: Base | Twin


@dataclasses.dataclass
class Plain:
    a: int = 1
    made: int = dataclasses.field(default=0, init=False)
    note: int = dataclasses.field(default=0, init=False, compare=False)


@dataclasses.dataclass
class Deeper(Plain):
    b: int = 2


class Text(str):
    pass


def made(kind: type[Any], **values: object) -> Any:
    """An object whose values were set after its validation."""
    found = kind()
    for name, value in values.items():
        setattr(found, name, value)
    return found


BERLIN = ZoneInfo("Europe/Berlin")
Pet = Annotated[Tagged | Other, Field(discriminator="kind")]

REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a subclass": (Base, Derived(), "as a Base, not as a Derived: give a Base, or declare a union of both classes"),
    "a subclass in a list": (list[Base], [Base(), Derived()], r"not as a Derived \(at \[1\]\)"),
    "a subclass in a dict": (dict[str, Base], {"a": Derived()}, r"\(at \['a'\]\)"),
    "an optional subclass": (Base | None, Derived(), "not as a Derived"),
    "a subclass that is written as what it is": (SerializeAsAny[Base], Derived(), "not as a Derived"),
    "a member of a union": (Base | Twin, Twin(), r"as a Base, not as a Twin: .*Field\(discriminator=...\)"),
    "a union inside of a model": (Anything, Anything(pet=Twin()), r"\(at .pet\)"),
    "a union inside of a TypedDict": (Options, {"pet": Twin()}, r"\(at \['pet'\]\)"),
    "a union beside what is open": (tuple[Any, Base | Twin], (1, Twin()), r"\(at \[1\]\)"),
    "a model deep in a tree": (Tree, Tree(below=[Tree(pet=Derived())]), r"\(at .below\[0\].pet\)"),
    "a root model": (Bases, Bases([Derived()]), r"\(at .root\[0\]\)"),
    "another generic model": (Box[Base], Box[Base](item=Derived()), r"\(at .item\)"),
    "a field that is left out": (Hidden, Hidden(token="T"), r"another value \(at .token\): .* without exclude="),
    "a field that is left out at times": (Sometimes, Sometimes(price=-1), r"\(at .price\)"),
    "a private attribute": (Private, made(Private, _tries=2), r"\(at ._tries\)"),
    "a field's serializer": (Rounded, Rounded(price=1.234), r"\(at .price\)"),
    "a model's serializer": (Short, Short(left_out=3), r"\(at .left_out\)"),
    "a serializer of an item": (list[Annotated[float, PlainSerializer(round)]], [1.5], r"\(at \[0\]\)"),
    "an alias that nobody reads": (Renamed, Renamed(name="y"), r"\(at .name\)"),
    "a computed field that becomes an extra one": (Area, Area(), r"\(at .area\)"),
    "keys that are strings in JSON": (dict[int | str, int], {1: 1}, "without a part of it.*keys are strings"),
    "keys over values of any type": (dict[int | str, Any], {1: 1}, "keys are strings"),
    "an enum or a number": (Level | int, Level.LOW, "as a int, not as a Level"),
    "an enum or a text": (Colour | str, Colour.RED, "as a str, not as a Colour"),
    "a date or a text": (dt.date | str, "2026-01-01", "as a date, not as a str"),
    "an id or a text": (uuid.UUID | str, str(uuid.UUID(int=1)), "as a UUID, not as a str"),
    "an offset with seconds": (dt.datetime, dt.datetime(1880, 1, 1, tzinfo=BERLIN), "as another value"),
    "a path of another class": (pathlib.PurePath, pathlib.Path("a"), "as a PurePosixPath"),
    "a tuple for a sequence": (Sequence[int], (1, 2), "as a list, not as a tuple"),
    "a bounded deque": (deque[int], deque([1], maxlen=3), "as another value"),
    "a dataclass of another class": (Plain, Deeper(), "as a Plain, not as a Deeper"),
    "a dataclass's own field": (Plain, made(Plain, made=3), r"\(at .made\)"),
    "a text of another class": (Base, made(Base, text=Text("x")), r"as a str, not as a Text \(at .text\)"),
    "a validator that does not fit": (Annotated[int, AfterValidator(lambda value: value + 1)], 1, "as another value"),
}

KEPT: dict[str, tuple[Any, Any]] = {
    "a union with a discriminator": (list[Pet], [Tagged(), Other()]),
    "a model with defaults": (Hidden, Hidden()),
    "an integer as the default of a float": (Rounded, Rounded()),
    "extras": (Open, Open.model_validate({"b": [1], "c": "x"})),
    "a tree": (Tree, Tree(data={"a": {"b": [1]}}, below=[Tree(pet=Base())])),
    "a generic model": (Box[Base], Box[Base](item=Base(text="x"))), "an enum": (Level, Level.LOW),
    "a literal enum": (Literal[Level.LOW], Level.LOW), "keys of numbers": (dict[int, str], {1: "a", -2: "b"}),
    "keys of enums": (dict[Colour, int], {Colour.RED: 1}), "a number or a text": (list[int | str], [1, "1"]),
    "numbers of two types": (list[int | float | bool], [1, 1.0, True, -0.0]), "a set": (set[int], {3, 1, 2}),
    "a set of models": (frozenset[Point], frozenset({Point(1, 2)})), "a path": (pathlib.Path, pathlib.Path("a/b")),
    "a date or a datetime": (list[dt.date | dt.datetime], [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1)]),
    "a time with a zone": (dt.datetime, dt.datetime(2026, 7, 1, 2, 30, tzinfo=BERLIN)),
    "a delta": (dt.timedelta, dt.timedelta(days=-1, microseconds=1)), "a decimal": (Decimal, Decimal("1.00")),
    "a decimal or a float": (list[Decimal | float], [Decimal("1.0"), 1.5]), "a deque": (deque[int], deque([1])),
    "counts": (Counter[str], Counter("aab")),
    "a dict with a default": (defaultdict[str, list[int]], defaultdict(list, a=[1])),
    "a dataclass": (Plain, Plain(a=2)), "a field that equality leaves out": (Plain, made(Plain, note=4)),
    "a message": (Message, Message(role="assistant", tool_calls=(ToolCall(id="1", name="t", arguments={"a": [1]}),))),
    "a result": (ToolResult, ToolResult(output=1, metadata={"a": [1]})),
}  # fmt: skip

CONVERTED: dict[str, tuple[Any, Any, Any]] = {
    "a tuple in a field of any type": (Any, (1, (2,)), [1, [2]]),
    "a model in a field of any type": (Any, {"a": Base(text="x")}, {"a": {"text": "x"}}),
    "a set in a field of any type": (Any, {2, 1}, [1, 2]),
    "a date in a field of any type": (Any, dt.date(2026, 1, 1), "2026-01-01"),
    "keys in a field of any type": (Any, {1: "a"}, {"1": "a"}),
    "a bare dict": (dict, {1: (2,)}, {"1": [2]}),
    "a list of anything": (list[Any], [deque([1])], [[1]]),
    "a part of any type": (Anything, Anything(data=(1, Base())), Anything(data=[1, {"text": ""}])),
    "a part of a named tuple": (Point, Point(1, (2,)), Point(1, [2])),
    "a part of a TypedDict": (Options, {"data": (1,)}, {"data": [1]}),
    "a part of a tree": (Tree, Tree(below=[Tree(data={"a": (1,)})]), Tree(below=[Tree(data={"a": [1]})])),
    "a failure for a result": (list[ToolResult], [ToolFailure(error="x", traceback="t")], [ToolResult(error="x")]),
    "an iterable": (Iterable[int], [1, 2], None),
    "a number for a text of digits": (int, "3", 3),
    "counts for a dict": (dict[str, int], Counter("a"), {"a": 1}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_read_back_as_another_value_is_refused(what: str) -> None:
    annotation, value, words = REFUSED[what]
    with pytest.raises(Unfit, match=f"its JSON, .*, is read back .*{words}"):
        Codec(annotation).encode(value)


@pytest.mark.parametrize("what", KEPT)
def test_what_is_accepted_is_read_back_equal(what: str) -> None:
    annotation, value = KEPT[what]
    codec = Codec(annotation)
    read = codec.load(codec.encode(value))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("what", CONVERTED)
def test_a_part_of_any_type_becomes_what_json_makes_of_it(what: str) -> None:
    annotation, value, expected = CONVERTED[what]
    codec = Codec(annotation)
    read = codec.load(codec.encode(value))
    assert expected is None or read == expected


def test_what_is_no_data_does_not_count() -> None:
    codec = Codec(Private)
    assert codec.load(codec.encode(Private()))._tries == 0  # each of them has a lock of its own


def test_what_no_json_has_is_not_quoted() -> None:
    with pytest.raises(Unfit) as refused:
        Codec(Hidden).encode(Hidden(token="hunter2"))
    assert "hunter2" not in str(refused.value)


class Standing(enum.Enum):
    OPEN = "open"


class Unchecked(BaseModel):
    """Pydantic validates no default."""

    model_config = ConfigDict(use_enum_values=True)

    tags: set[str] = []
    names: list[str] = ()
    made: set[int] = Field(default_factory=list)
    day: dt.date = "2026-01-01"
    standing: Standing = Standing.OPEN


@dataclasses.dataclass
class UncheckedData:
    day: dt.date = "2026-01-01"
    made: set[int] = dataclasses.field(default_factory=list)


class Moment(dt.datetime):
    """A time as libraries for tests and tables have it."""


class Day(dt.date):
    """The same of a date."""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: int


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Unchecked, Unchecked()),
        (list[Unchecked], [Unchecked(), Unchecked(day=dt.date(2026, 1, 2))]),
        (UncheckedData, UncheckedData()),
        (dt.datetime, Moment(2026, 1, 2, 3, tzinfo=dt.UTC)),
        (dt.date, Day(2026, 1, 2)),
        (Open, Open(id=1, when=dt.datetime(2026, 1, 2), tags=("a",), standing=Standing.OPEN)),
    ],
)
def test_what_ordinary_classes_give_is_taken(kind: Any, value: Any) -> None:
    codec = Codec(kind)
    codec.load(codec.encode(value))


def test_a_default_that_was_changed_is_compared() -> None:
    value = Unchecked()
    value.tags.append("a")
    with pytest.raises(Unfit, match="tags"):
        Codec(Unchecked).encode(value)
