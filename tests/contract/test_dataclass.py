"""`orchestrator.dataclass`: what it makes is what the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import threading
from dataclasses import KW_ONLY, InitVar, field
from functools import partial
from typing import Any, ClassVar, cast
from unittest.mock import patch

import pytest

from orchestrator.dataclass import dataclass

OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "frozen": {"frozen": True},
    "slots": {"slots": True},
    "frozen, slots": {"frozen": True, "slots": True},
    "by identity": {"slots": True, "eq": False},
    "frozen, by name": {"frozen": True, "kw_only": True},
}
METHODS = ("__init__", "__repr__", "__eq__", "__hash__")


def full() -> type:
    class Full:
        """A class with every sort of field."""

        first: int
        given: InitVar[int] = cast(Any, 2)
        sort: ClassVar[str] = "full"
        many: list[int] = field(default_factory=list)
        hidden: str = field(default="no", repr=False, compare=False)
        later: int = field(default=0, init=False)
        _: KW_ONLY
        named: str = "x"

        def __post_init__(self, given: int) -> None:
            object.__setattr__(self, "later", given)

    return Full


def small() -> type:
    class Small:
        first: int = 1
        named: str = ""

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

    return Small


def told(act: Any) -> object:
    """What comes of an act: a result, or how it fails."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def refused(act: Any) -> bool:
    """Whether an act fails; Python 3.11 confuses classes with slots when it tells why."""
    try:
        act()
    except (AttributeError, TypeError):
        return True
    return False


def behaviour(kind: Any, first: Any) -> list[object]:
    """What can be told of a class and its objects."""
    one = kind(first=first, named="b")
    other = kind(first=first, named="c")
    twin = kind(first=first, named="b")
    facts: list[Any] = [
        lambda: str(inspect.signature(kind)),
        lambda: kind(1, 2, [3], "h", named="n").later,
        lambda: kind("too", "many", 3, 4, 5, 6, 7),
        lambda: repr(kind()),
        lambda: repr(one),
        lambda: (one == twin, one == other, one != twin, one == 1, one == object()),
        lambda: hash(one) == hash(twin),
        lambda: hash(twin) and len({one, twin, other}),
        lambda: setattr(one, "first", 9),
        lambda: refused(lambda: setattr(one, "unknown", 9)),
        lambda: refused(lambda: delattr(one, "unknown")),
        lambda: delattr(one, "named"),
        lambda: one.first,
        lambda: repr(dataclasses.replace(twin, named="z")) if kind.__name__ == "Small" else None,
        lambda: copy.copy(twin) == twin,
        lambda: copy.deepcopy(twin) == twin,
        lambda: dataclasses.asdict(twin),
        lambda: [(each.name, each.type, each.kw_only) for each in dataclasses.fields(kind)],
        lambda: kind.__match_args__,
        lambda: repr(kind.__dataclass_params__),
        lambda: hasattr(twin, "__dict__"),
        lambda: [getattr(getattr(kind, name), "__qualname__", None) for name in METHODS],
    ]
    return [told(fact) for fact in facts]


@pytest.mark.parametrize("make", [full, small])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("first", [1, []])
def test_a_class_is_as_of_the_standard_library(make: Any, options: dict[str, bool], first: Any) -> None:
    ours = behaviour(cast(Any, dataclass)(**options)(make()), first)
    theirs = behaviour(cast(Any, dataclasses.dataclass)(**options)(make()), first)
    assert ours == theirs


def test_a_class_has_no_method_until_it_is_used() -> None:
    compiled: list[str] = []

    def count(source: str, *rest: Any, made: Any = exec) -> None:
        compiled.append(source)
        made(source, *rest)

    with patch.object(dataclasses, "exec", count, create=True):
        kind: Any = dataclass(frozen=True, slots=True)(small())
        assert compiled == []
        one: Any = kind()
        used = len(compiled)
        assert used > 0
        assert kind() is not one
        assert len(compiled) == used
        assert one == kind()
        assert len(compiled) == used + 1


def test_a_method_is_the_function_itself_once_it_is_used() -> None:
    kind: Any = dataclass(full())
    kind(1)
    assert inspect.isfunction(vars(kind)["__init__"])


def test_a_class_can_be_extended() -> None:
    base: Any = dataclass(frozen=True)(full())
    derived: Any = dataclass(frozen=True)(type("Derived", (base,), {"__annotations__": {"more": "int"}, "more": 3}))
    assert repr(derived(1)).endswith("Derived(first=1, many=[], later=2, named='x', more=3)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        derived(1).first = 2
    plain = type("Plain", (base,), {})
    assert plain(1) == plain(1) != base(1)
    plain(1).free = 1
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclass(type("Open", (base,), {"__annotations__": {}}))


def test_a_method_can_be_replaced_and_restored() -> None:
    kind: Any = dataclass(small())
    with patch.object(kind, "__init__", lambda self: None):
        kind()
    assert kind(3).first == 3
    with patch.object(kind, "__eq__", lambda self, other: True):
        assert kind(3) == kind(4)
    assert kind(3) != kind(4)


def test_threads_make_a_method_at_once() -> None:
    for _ in range(20):
        kind: Any = dataclass(frozen=True, slots=True)(full())
        gate, found = threading.Barrier(4), list[Any]()

        def use(kind: Any = kind, gate: Any = gate, found: list[Any] = found) -> None:
            gate.wait()
            found.append((kind(1), hash(kind(1, many=())), repr(kind(1))))

        threads = [threading.Thread(target=partial(use)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert len(found) == 4
        assert all(one == found[0] for one in found)
