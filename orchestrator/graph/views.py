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
from typing import Any, SupportsIndex, TypeAlias, cast

from pydantic import BaseModel

Isolate: TypeAlias = Callable[[Any], Any]
Copied: TypeAlias = tuple[tuple[str, Isolate], ...]
"""Fields that have to be copied, each with what makes the copy."""

_set = object.__setattr__
_real_dict = BaseModel.__dict__["__dict__"]
"""Descriptor of the instance dictionary itself; a view's `__dict__` is a property around it."""


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
    _set(view, "_pending", {name: (shown.pop(name), isolate) for name, isolate in copied if name in shown})
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
