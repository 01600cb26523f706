"""Isolation of state between branches: lists with a shared start, values copied or shared, and views of the state."""

from __future__ import annotations

import copy
import dataclasses
import enum
import gc
import os
import threading
import types
from abc import ABCMeta
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import chain, islice, repeat
from operator import attrgetter, itemgetter
from pathlib import PurePath
from types import SimpleNamespace, new_class
from typing import Annotated, Any, Literal, SupportsIndex, TypeAlias, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

# -- Lists that share their items with the lists that they were made from --------------------------------------
# A field with the reducer `append` or `extend` grows by a few items a step, and every version of the state contains the
# list. With a full copy each time, the cost of a step would grow with the list, and a fork of many branches would keep
# many copies. The first list made from another one therefore appends its items to the same store; any further one, such
# as those of branches, starts its own store on top.


_lock = threading.Lock()
_DEEP = 16
"""The depth of stacked lists from which they are merged into one."""


class SharedList:
    """An immutable list from which a longer one can be made cheaply.

    Args:
        items: the store of its last items. It may grow beyond `count` and is not changed otherwise.
        count: the number of items in the store that belong to the list.
        below: the list of the items before those.
    """

    __slots__ = ("_below", "_count", "_depth", "_flat", "_items", "_length")

    def __init__(self, items: list[Any], count: int, below: SharedList | None = None) -> None:
        self._items, self._count, self._below = items, count, below
        self._length: int = count if below is None else count + below._length
        self._depth: int = 1 if below is None else 1 + below._depth
        self._flat: SharedList | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        return self.items()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedList | list):
            return self is other or self.items() == listed(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __deepcopy__(self, memo: object) -> SharedList:
        return self

    def __repr__(self) -> str:
        return f"SharedList({self.items()!r})"

    def items(self) -> list[Any]:
        """Return a new list of its items."""
        if self._below is None:
            return self._items[: self._count]
        parts: list[SharedList] = []
        part: SharedList | None = self
        while part is not None:
            parts.append(part)
            part = part._below
        found: list[Any] = []
        for part in reversed(parts):
            found += part._items[: part._count]
        return found

    def plus(self, fresh: Sequence[Any]) -> SharedList:
        """Return a list of its items followed by others."""
        store, count, below = self._items, self._count, self._below
        with _lock:  # several threads may make versions of one run: a view folds its records, too
            if len(store) == count:
                store += fresh
                return SharedList(store, count + len(fresh), below)
        return SharedList(own := list(fresh), len(own), self._as_base())

    def _as_base(self) -> SharedList:
        """Return the same list as a base for others, merged into one store if it is stacked too deep."""
        if self._depth < _DEEP:
            return self
        if self._flat is None:
            items = self.items()
            self._flat = SharedList(items, len(items))
        return self._flat

    def since(self, other: object) -> list[Any] | None:
        """Return the items added since `other`; None if this list was not made from it, or not within one store."""
        if isinstance(other, SharedList) and other._items is self._items and other._below is self._below:
            return self._items[other._count : self._count] if other._count <= self._count else None
        return None


def grown(old: object, fresh: Sequence[Any]) -> SharedList:
    """Return the items of an old list, which may be None, followed by others. The old list is not changed."""
    if type(old) is SharedList:
        return old.plus(fresh)
    items = list(fresh)
    if not old:
        return SharedList(items, len(items))
    # A list that came in as a whole is not changed: only stores made here grow.
    known = old if type(old) is list else list(old)  # type: ignore[call-overload]
    return SharedList(items, len(items), SharedList(known, len(known)))


def listed(value: Any) -> Any:
    """Return the value itself; for a shared list, a plain list of its items."""
    return value.items() if type(value) is SharedList else value


# -- Copies that share nothing mutable, as cheap as a type allows ----------------------------------------------
# A frozen model or dataclass is shared if all values of its fields can be shared, too; one that contains a list is
# copied. The items of a long list are copied together, type by type: a list of messages then costs a few calls for each
# level, plus little more for each message than its own objects.


_NONE = type(None)
_ATOMS = frozenset({str, int, float, bool, _NONE})
_IMMUTABLE = (
    str, int, float, bool, _NONE, bytes, complex, range,
    date, datetime, time, timedelta, Decimal, UUID, PurePath, enum.Enum,
)  # fmt: skip


def isolation_of(annotation: object, *, native: bool = False) -> Callable[[Any], Any] | None:
    """Return a function that copies values of this type and shares nothing mutable; None if values can be shared.

    Args:
        annotation: the type.
        native: True if its values are always plain JSON.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        return isolation_of(get_args(annotation)[0], native=native)
    if _shareable(annotation):
        return None
    arguments = [a for a in get_args(annotation) if a is not Ellipsis]
    if origin in (list, dict, set) and arguments and all(_shareable(argument) for argument in arguments):
        return _copy
    return json_copy if native else isolated


def _copy(value: Any) -> Any:
    # A value of a union or a subclass may be another container than its type indicates.
    if type(value) is SharedList:
        return value.items()
    return value.copy() if type(value) in (list, dict, set) else isolated(value)


def json_copy(value: Any) -> Any:
    """Return a copy of a value that was read from JSON."""
    value = listed(value)
    try:
        with collector_waits(len(value) if type(value) in (list, dict) else 0):
            return _from_json(value)
    except ValueError:  # deeper than pydantic goes: it was stored before there was a limit
        return isolated(value)


_from_json: Callable[[Any], Any] = TypeAdapter(Any).serializer.to_python


def _shareable(annotation: object, seen: set[type] | None = None) -> bool:
    """Return True if all values of a type are immutable, including their contents.

    Args:
        annotation: the type.
        seen: the classes already visited for this answer. They are not visited again: a mutable one makes the whole
            answer False, and a recursive one does not change it.
    """
    seen = set() if seen is None else seen
    origin = get_origin(annotation)
    if origin is Annotated:
        return _shareable(get_args(annotation)[0], seen)
    if origin is Literal or annotation is None:
        return True
    if origin in (Union, types.UnionType, tuple, frozenset):
        return all(_shareable(argument, seen) for argument in get_args(annotation) if argument is not Ellipsis)
    if not isinstance(annotation, type):
        return False
    return annotation in seen or issubclass(annotation, _IMMUTABLE) or _frozen(annotation, seen)


def _frozen(kind: type, seen: set[type]) -> bool:
    """Return True if neither the objects of a class nor the contents of their fields can change."""
    seen.add(kind)
    if vars(kind).get("__immutable__"):
        return True
    if any(isinstance(value, cached_property) for base in kind.__mro__ for value in vars(base).values()):
        return False  # its result is cached in the object, and may be a list
    held = _frozen_model(kind) if issubclass(kind, BaseModel) else _frozen_dataclass(kind)
    return held is not None and all(_shareable(annotation, seen) for annotation in held)


def _frozen_model(kind: type[BaseModel]) -> list[object] | None:
    """Return the types of a model's fields; None if the model is mutable or has other contents."""
    if not kind.model_config.get("frozen") or kind.model_config.get("extra") == "allow":
        return None
    if kind.__private_attributes__ or _has_slots(kind):
        return None
    return [field.annotation for field in kind.model_fields.values()]


def _frozen_dataclass(kind: type) -> list[object] | None:
    """Return the types of a dataclass's fields; None if it is mutable, not a dataclass, or has an unknown type."""
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return None
    try:
        hints = get_type_hints(kind)
    except Exception:  # evaluating an annotation may raise any exception
        return None
    return [hints[field.name] for field in dataclasses.fields(kind)]


def isolated(value: Any) -> Any:
    """Return a copy of a value of any type that shares nothing mutable with it."""
    kind: type = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return [isolated(item) for item in value] if len(value) < _MANY else _long_list(value)
    if kind is dict:
        return {key: isolated(item) for key, item in value.items()}
    if kind is tuple:
        return tuple(isolated(item) for item in value)
    own = _own_copy(kind)
    return copy.deepcopy(value) if own is None else own(value)


@lru_cache(maxsize=1024)
def _own_copy(kind: type) -> Callable[[Any], Any] | None:
    """Return a copying function faster than `deepcopy`, or a sharing one; None if the class defines its own."""
    if kind is SharedList:
        return _listed_copy
    if _shareable(kind):
        return _shared
    if not issubclass(kind, BaseModel) or kind.__deepcopy__ is not BaseModel.__deepcopy__:
        return None
    if kind.__new__ is not object.__new__ or _has_slots(kind):
        return None
    return _model_copy


def _shared(value: Any) -> Any:
    return value


def _listed_copy(value: SharedList) -> list[Any]:
    return list(isolated(value.items()))


_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _model_copy(value: Any) -> Any:
    """Return a deep copy of a model, field by field, as pydantic's `__deepcopy__` makes it."""
    made = object.__new__(type(value))
    values = value.__dict__
    plain = _ATOMS.issuperset(map(type, values.values()))
    _set_values(made, values.copy() if plain else {name: isolated(one) for name, one in values.items()})
    _set_fields(made, value.__pydantic_fields_set__.copy())
    extra = value.__pydantic_extra__
    _set_extra(made, None if extra is None else isolated(extra))
    _set_private(made, _private_copy(value))
    return made


def _private_copy(value: Any) -> dict[str, Any] | None:
    private = getattr(value, "__pydantic_private__", None)
    if private is None:
        return None
    return {name: copy.deepcopy(one) for name, one in private.items() if one is not PydanticUndefined}


def _has_slots(kind: type) -> bool:
    """Return True if a class stores values outside its dictionary, in addition to those of pydantic's base class."""
    return any(vars(base).get("__slots__") for base in kind.__mro__ if base not in BaseModel.__mro__)


# -- many values at once ---------------------------------------------------------------------------------------------

_MANY = 8
"""Number of items from which a list's items are copied together, with the same result."""
_VERY_MANY = 500
"""Number of items from which garbage collection is paused during the copy."""

_values_of, _fields_of, _extra_of, _private_of = map(
    attrgetter, ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
_do: Callable[[Iterable[object]], None] = deque[object](maxlen=0).extend


def _long_list(values: list[Any]) -> list[Any]:
    with collector_waits(len(values)):
        return list(_copies(values))


@contextmanager
def collector_waits(count: int) -> Iterator[None]:
    """Pause the garbage collector while many objects are made, which it would traverse again and again.

    Copies contain no garbage cycles, and any collection afterwards traverses all objects of the process.

    Args:
        count: the number of values to copy. For a small number the collector is not paused.
    """
    global _waits
    waits = count >= _VERY_MANY and gc.isenabled()
    if waits:
        _waits = True
        gc.disable()
    try:
        yield
    finally:
        if waits:
            gc.enable()
            _waits = False


_waits = False
"""True while a thread of this process has paused the collector."""


def _after_fork() -> None:
    """Resume garbage collection in a forked child: the thread that paused it exists only in the parent."""
    if _waits:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _copies(values: Sequence[Any]) -> Sequence[Any]:
    """Return copies of values of any types, in order; the values themselves if all of them can be shared."""
    kinds = set(map(type, values))
    if kinds <= _ATOMS:
        return values
    if len(kinds) == 1:
        return _copies_of(kinds.pop(), values)
    found = list(values)
    for kind in kinds - _ATOMS:
        places = [place for place, value in enumerate(values) if type(value) is kind]
        for place, made in zip(places, _copies_of(kind, [values[place] for place in places]), strict=True):
            found[place] = made
    return found


def _copies_of(kind: type, values: Sequence[Any]) -> Sequence[Any]:
    """Return copies of values of one type."""
    if kind is dict:
        return _dicts(values)
    if kind is list or kind is tuple:
        held = list(chain.from_iterable(values))
        copied = _copies(held)
        if kind is tuple and copied is held:
            return values
        items = iter(copied)
        return [kind(islice(items, len(value))) for value in values]
    own = _own_copy(kind)
    if own is _shared:
        return values
    if own is not _model_copy:
        return [isolated(value) for value in values]
    made: list[Any] = list(map(object.__new__, repeat(kind, len(values))))
    _do(map(_set_values, made, _dicts(map(_values_of, values))))
    _do(map(_set_fields, made, map(set.copy, map(_fields_of, values))))
    extra, hidden = list(map(_extra_of, values)), list(map(_private_of, values))
    _do(map(_set_extra, made, extra if extra.count(None) == len(extra) else _copies(extra)))
    _do(map(_set_private, made, hidden if hidden.count(None) == len(hidden) else map(_private_copy, values)))
    return made


def _dicts(values: Iterable[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """Return copies of dictionaries. Their keys are shared."""
    made = list(map(dict.copy, values))
    if _ATOMS.issuperset(map(type, chain.from_iterable(map(dict.values, made)))):
        return made
    if len(set(map(len, made))) == 1:
        try:
            columns = [(key, list(map(itemgetter(key), made))) for key in made[0]]
        except KeyError:
            pass
        else:  # equal numbers of keys, and all keys of the first one: the keys are the same
            for key, column in columns:
                copied = _copies(column)
                if copied is not column:
                    _do(map(dict.__setitem__, made, repeat(key), copied))
            return made
    below = [(one, key, value) for one in made for key, value in one.items() if type(value) not in _ATOMS]
    for (one, key, _), value in zip(below, _copies([value for _, _, value in below]), strict=True):
        one[key] = value
    return made


# -- Instances of a state class that copy a field when it is first read ----------------------------------------
# A node gets an instance of the state class that shares nothing mutable with the values of the run. If every step
# copied every field, its cost would depend on the size of the state, not on what the step reads: a branch of a map that
# reads only `ctx.item` would copy the whole list that contains the item. A view is therefore an instance of a subclass,
# made once for each state class, in which the fields that need a copy are missing at first. `__getattr__`, which Python
# calls for missing attributes, makes the copy. Whatever reads `__dict__` (pydantic's serializer, `==`, `vars`,
# `pickle`) gets all fields.


Isolate: TypeAlias = Callable[[Any], Any]
Copied: TypeAlias = tuple[tuple[str, Isolate], ...]
"""The fields that have to be copied, each with the function that copies it."""

_set = object.__setattr__
_real_dict = BaseModel.__dict__["__dict__"]
"""Descriptor of the real instance dictionary; a view replaces `__dict__` with a property."""


class Views:
    """Makes the views of one state. Each view class is made once.

    Args:
        cls: the state class; None if its code is not loaded.
        names: the names of the state's fields.
        copied: the fields that have to be copied.
    """

    def __init__(self, cls: type[BaseModel] | None, names: frozenset[str], copied: Copied) -> None:
        self._cls, self._names, self._copied = cls, names, copied
        self._post_init = cls is not None and cls.__pydantic_post_init__ is not None
        self._readers: dict[frozenset[str], type[BaseModel]] = {}
        self._classes: dict[frozenset[str] | None, tuple[type[BaseModel], bool]] = {}
        """Visible fields -> the view class for them, and whether it copies fields when they are read."""

    def view(self, values: Mapping[str, object], reads: frozenset[str] | None = None) -> Any:
        """Return a view of some values, with all fields or only those that a node reads."""
        shown = dict(values) if reads is None else {k: v for k, v in values.items() if k in reads}
        fields = set(shown)
        if self._cls is None:
            self._isolate(shown)
            return SimpleNamespace(**shown)
        cls, lazy = self._classes.get(reads) or self._class_for(self._cls, reads)
        view: Any = cls.__new__(cls)
        if lazy:
            fill(view, shown, self._copied)
        else:
            if self._copied:
                self._isolate(shown)
            _set_values(view, shown)
        _set_fields(view, fields)
        _set_extra(view, None)
        _set_private(view, None)
        if self._post_init:
            view.model_post_init(None)
        return view

    def _isolate(self, shown: dict[str, object]) -> None:
        for name, isolate in self._copied:
            if name in shown:
                shown[name] = isolate(shown[name])

    def _class_for(self, cls: type[BaseModel], reads: frozenset[str] | None) -> tuple[type[BaseModel], bool]:
        shows = cls if reads is None else self._reader(cls, reads)
        viewer = view_class(shows) if self._copied else None
        found = self._classes[reads] = (shows, False) if viewer is None else (viewer, True)
        return found

    def _reader(self, cls: type[BaseModel], reads: frozenset[str]) -> type[BaseModel]:
        reader = self._readers.get(reads)
        if reader is None:
            reader = self._readers[reads] = _reader_of(cls, self._names, reads)
        return reader


def _reader_of(cls: type[BaseModel], names: frozenset[str], reads: frozenset[str]) -> type[BaseModel]:
    """Return a subclass whose instances have only some of the fields and raise a clear error for the others."""
    shown = ", ".join(sorted(reads)) or "nothing"

    def refuse(self: BaseModel, name: str) -> object:
        if name in names:
            raise AttributeError(f"this node reads {shown}, not {name!r}: add it to its reads=")
        raise AttributeError(f"{cls.__name__!r} has no field {name!r}")

    members = {"__getattr__": refuse, "__module__": cls.__module__}
    return new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(members))


def view_class(cls: type[BaseModel]) -> type[BaseModel] | None:
    """Return the subclass of `cls` whose instances copy fields when they are read; None if `cls` cannot be subclassed.

    It bypasses pydantic's metaclass: it adds no fields, so the validator and the serializer of `cls` apply to it.
    """
    members = {"__slots__": ("_pending",), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    try:
        made = ABCMeta.__new__(type(cls), cls.__name__, (cls,), {**members, **_methods(cls)})
    except Exception:  # a hook of the user's class, such as __init_subclass__, may raise any exception
        return None
    return made


def fill(view: object, shown: dict[str, object], copied: Copied) -> None:
    """Set the values of a new instance of a view class, which takes ownership of the dictionary `shown`."""
    pending = {}
    for name, isolate in copied:
        if name in shown:
            pending[name] = shown.pop(name), isolate
    _set(view, "_pending", pending)
    _real_dict.__set__(view, shown)


def _methods(cls: type[BaseModel]) -> Mapping[str, object]:
    def copied(self: Any, name: str) -> Any:
        pending = self._pending
        found = pending.get(name)
        if found is not None:
            value, isolate = found
            # Threads of one node may read a field at the same time: all of them get the first copy.
            value = _real_dict.__get__(self).setdefault(name, isolate(value))
            pending.pop(name, None)
            return value
        values = _real_dict.__get__(self)
        if name in values:
            return values[name]
        return cast("Any", cls).__getattr__(self, name)

    def whole(self: Any) -> dict[str, Any]:
        for name in tuple(self._pending):
            copied(self, name)
        return cast("dict[str, Any]", _real_dict.__get__(self))

    def replace_all(self: object, values: dict[str, object]) -> None:
        _set(self, "_pending", {})
        _real_dict.__set__(self, values)

    def delete(self: Any, name: str) -> None:
        whole(self)
        cls.__delattr__(self, name)

    def plain(self: object) -> Any:
        made = cls.__new__(cls)
        _set(made, "__dict__", whole(self))
        for name in ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
            _set(made, name, getattr(self, name))
        return made

    def shallow_copy(self: object) -> Any:
        return plain(self).__copy__()

    def deep_copy(self: object, memo: dict[int, object] | None = None) -> Any:
        return plain(self).__deepcopy__(memo)

    def reduce(self: object, protocol: SupportsIndex) -> object:
        return plain(self).__reduce_ex__(protocol)

    def class_of(self: object) -> type[BaseModel]:
        return cls

    return {
        "__getattr__": copied,
        "__delattr__": delete,
        "__dict__": property(whole, replace_all),
        "__class__": property(class_of),
        "__copy__": shallow_copy,
        "__deepcopy__": deep_copy,
        "__reduce_ex__": reduce,
    }
