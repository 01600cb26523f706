"""Digests of code: what tells whether a function is the one that made a stored result.

They cover the function's bytecode, its defaults and what it closes over. They do not cover functions that it calls, so
a change there needs another `version=`. Another version of Python has other bytecode, and so other digests.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from orchestrator.graph.function import FunctionNode
from orchestrator.graph.node import Node, is_shipped
from orchestrator.graph.refs import find
from orchestrator.jsontypes import digest

_DEEPEST = 20
"""Functions inside of each other that are looked at."""


class Undigestible(ValueError):
    """Raised when code depends on an object that has no JSON form; the message says on which."""


def node_code_digest(node: Node) -> str:
    """The digest of a node's own code; empty if the node is of a kind of the library and calls no code of others.

    With `version=`, objects without a JSON form are left out: the version stands for them.

    Args:
        node: the node.

    Raises:
        Undigestible: the code depends on an object that has no JSON form, and the node has no `version`.
    """
    parts = [_function(function, node.version is not None) for function in _functions(node)]
    return digest(parts) if parts else ""


def _functions(node: Node) -> Iterator[Callable[..., object]]:
    """The functions of a node that are not of the library."""
    if isinstance(node, FunctionNode):
        yield node.fn
        return
    for cls in type(node).__mro__:
        if issubclass(cls, Node) and not is_shipped(cls):
            own = (value for _, value in sorted(vars(cls).items()) if isinstance(value, FunctionType))
            yield from (value for value in own if value.__module__ == cls.__module__)  # others are pydantic's
    ref = getattr(node, node.calls_code) if node.calls_code is not None else None
    found: object = find(ref) if isinstance(ref, str) else ref
    if callable(found):
        yield found


def _function(function: Callable[..., object], lenient: bool, deep: int = 0) -> object:
    found: Any = inspect.unwrap(function)
    if isinstance(found, functools.partial):
        inner = _function(found.func, lenient, deep + 1)
        return [inner, *(_value(one, lenient, "an argument", deep) for one in (found.args, dict(found.keywords)))]
    if isinstance(found, FunctionNode):
        return _function(found.fn, lenient, deep + 1)
    if isinstance(found, MethodType):
        return [_value(found.__self__, lenient, "its object", deep), _function(found.__func__, lenient, deep + 1)]
    if not isinstance(found, FunctionType):
        call = inspect.getattr_static(type(found), "__call__", None)
        if isinstance(call, FunctionType):
            return [_value(found, lenient, "its object", deep), _function(call, lenient, deep + 1)]
        return [getattr(found, "__module__", ""), getattr(found, "__qualname__", "")]  # built in
    cells = zip(found.__code__.co_freevars, found.__closure__ or (), strict=True)
    closed = {name: _cell(cell, lenient, f"{name!r}", deep) for name, cell in cells}
    defaults = [_value(one, lenient, "a default", deep) for one in (found.__defaults__, found.__kwdefaults__)]
    return [_code(found.__code__), closed, defaults]


def _cell(cell: Any, lenient: bool, what: str, deep: int) -> object:
    try:
        value = cell.cell_contents
    except ValueError:  # not set yet
        return None
    return _value(value, lenient, what, deep)


def _value(value: object, lenient: bool, what: str, deep: int) -> object:
    if deep < _DEEPEST and isinstance(value, FunctionType | functools.partial | FunctionNode):
        return _function(value, lenient, deep + 1)
    if isinstance(value, type):  # as the cell of `super()` has it
        return f"{value.__module__}.{value.__qualname__}"
    try:
        return digest(value)
    except (TypeError, ValueError, RecursionError):
        if lenient:
            return type(value).__qualname__
        raise Undigestible(f"{what}, of type {type(value).__qualname__}") from None


def _code(code: CodeType) -> object:
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    return [code.co_code.hex(), [_constant(one) for one in code.co_consts], [[*part] for part in names]]


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(one) for one in value]
    if isinstance(value, frozenset):  # its order differs from process to process
        return sorted(repr(one) for one in value)
    return repr(value)
