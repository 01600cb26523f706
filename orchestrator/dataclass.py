"""`dataclass`, as in the standard library, but a method that it adds is made when it is first used.

The standard library writes and compiles the source of up to six methods while a class is defined. That was a quarter of
what a short command took, which uses few of these methods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, eq=True, frozen=False, kw_only=False, slots=False):
        """Make a class a dataclass. The parameters are those of `dataclasses.dataclass`."""
        options = {"eq": eq, "frozen": frozen, "kw_only": kw_only, "slots": slots}
        if cls is None:
            return lambda given: dataclass(given, **options)
        if any(map(dataclasses.is_dataclass, cls.__bases__)):
            return dataclasses.dataclass(**options)(cls)  # whose methods depend on what the bases are
        return _dataclass(cls, **options)


def _dataclass(given: type, *, eq: bool, frozen: bool, kw_only: bool, slots: bool) -> object:
    own = dict(vars(given))
    body: dict[str, object] = {name: own[name] for name in given.__annotations__ if name in own}  # what has a default
    body |= {"__module__": given.__module__, "__qualname__": given.__qualname__, "__doc__": ""}
    body["__annotations__"] = given.__annotations__
    if hasattr(given, "__post_init__"):
        body["__post_init__"] = None  # so that `__init__` calls it

    def later(name: str, **options: bool) -> _Later:
        return _Later(name, lambda: _method(name, type(given.__name__, (), dict(body)), kw_only=kw_only, **options))

    if given.__doc__ is None:
        given.__doc__ = given.__name__  # instead of its signature
    made: Any = _STANDARD(given, **_NO_METHODS, kw_only=kw_only, slots=slots)
    for option, chosen in {"init": True, "repr": True, "eq": eq, "frozen": frozen}.items():
        setattr(made.__dataclass_params__, option, chosen)

    added: dict[str, object] = {
        "__init__": later("__init__", init=True, frozen=frozen, slots=slots),
        "__repr__": later("__repr__", repr=True),
    }
    if eq:
        added["__eq__"] = later("__eq__", eq=True)
        if "__hash__" not in own or ("__eq__" in own and own["__hash__"] is None):
            setattr(made, "__hash__", later("__hash__", unsafe_hash=True) if frozen else None)  # noqa: B010  not for mypy
    if frozen:
        added |= _frozen(made)
    if frozen and slots:
        added |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, value in added.items():
        if name not in own:
            setattr(made, name, value)
    return made


_STANDARD: Any = dataclasses.dataclass
_NO_METHODS = {"init": False, "repr": False, "eq": False}


def _method(name: str, fields: type, **options: bool) -> Any:
    """The method that the standard library adds to a class of these fields."""
    return vars(_STANDARD(fields, **_NO_METHODS | options))[name]


class _Later:
    """A method of a class, in the place of which it puts the method itself."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name, self._make = name, make
        self._method: Any = None

    def __get__(self, instance: object, owner: type) -> Any:
        if self._method is None:
            self._method = self._make()
        for place in owner.__mro__:
            if vars(place).get(self._name) is self:
                setattr(place, self._name, self._method)
        return self._method.__get__(instance, owner)


def _frozen(made: Any) -> dict[str, object]:
    """What refuses to assign to fields and to delete them."""

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is made or name in made.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is made or name in made.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[object]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
