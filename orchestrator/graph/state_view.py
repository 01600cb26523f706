"""Instances of a state class that copy a field when it is first read.

A node gets an instance of the state class that shares nothing mutable with the values of the run. Copying every field
for every step would cost what the state holds, not what the step reads: a branch of a map that reads `ctx.item` only
would copy the whole list that the item came from. A view is therefore an instance of a subclass, made once for each
state class, in which the fields that need a copy are missing at first. `__getattr__`, which Python calls for missing
attributes, makes the copy. Whatever reads `__dict__` (pydantic's serialiser, `==`, `vars`, `pickle`) gets all fields.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping
from types import SimpleNamespace, new_class
from typing import Any, SupportsIndex, TypeAlias, cast

from pydantic import BaseModel

Isolate: TypeAlias = Callable[[Any], Any]
Copied: TypeAlias = tuple[tuple[str, Isolate], ...]
"""Fields that have to be copied, each with what makes the copy."""

_set = object.__setattr__
_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
_real_dict = BaseModel.__dict__["__dict__"]
"""Descriptor of the instance dictionary itself; a view's `__dict__` is a property around it."""


class Views:
    """Makes the views of one state. The classes that it needs are made once.

    Args:
        cls: the state class; None if its code is not loaded.
        names: the names of its fields.
        copied: the fields that have to be copied.
    """

    def __init__(self, cls: type[BaseModel] | None, names: frozenset[str], copied: Copied) -> None:
        self._cls, self._names, self._copied = cls, names, copied
        self._post_init = cls is not None and cls.__pydantic_post_init__ is not None
        self._readers: dict[frozenset[str], type[BaseModel]] = {}
        self._classes: dict[frozenset[str] | None, tuple[type[BaseModel], bool]] = {}
        """The fields that are shown -> the class of a view of these, and whether it copies them when they are read."""

    def view(self, values: Mapping[str, object], reads: frozenset[str] | None = None) -> Any:
        """Return a view of some values, with all fields or with those that a node reads."""
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
    """A subclass whose instances have only some of the fields, and say so when another one is read."""
    shown = ", ".join(sorted(reads)) or "nothing"

    def refuse(self: BaseModel, name: str) -> object:
        if name in names:
            raise AttributeError(f"this node reads {shown}, not {name!r}: add it to its reads=")
        raise AttributeError(f"{cls.__name__!r} has no field {name!r}")

    members = {"__getattr__": refuse, "__module__": cls.__module__}
    return new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(members))


def view_class(cls: type[BaseModel]) -> type[BaseModel] | None:
    """The subclass of `cls` whose instances copy fields when they are read; None if `cls` refuses to be subclassed.

    It bypasses pydantic's metaclass: as it adds no fields, the validator and the serialiser of `cls` serve it too.
    """
    members = {"__slots__": ("_pending",), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    try:
        made = ABCMeta.__new__(type(cls), cls.__name__, (cls,), {**members, **_methods(cls)})
    except Exception:  # a hook such as __init_subclass__ of the user's class may raise anything
        return None
    return made


def fill(view: object, shown: dict[str, object], copied: Copied) -> None:
    """Give a new instance of a view class its values; it takes over the dictionary `shown`."""
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
