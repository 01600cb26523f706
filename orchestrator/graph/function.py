"""Functions as nodes, and digests of their code."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

from pydantic import Field

from orchestrator.errors import GraphError
from orchestrator.graph.limits import Retry
from orchestrator.graph.model import Effect, GraphDefinition, Node, is_shipped
from orchestrator.graph.outcome import DONE, NodeResult
from orchestrator.graph.refs import find, ref_of
from orchestrator.graph.signatures import (
    Wanted,
    declared_outcomes,
    declared_updates,
    is_async,
    is_awaitable,
    returns_plainly,
    wanted_arguments,
)
from orchestrator.graph.topology import Join, Rest
from orchestrator.graph.typevars import Erased
from orchestrator.json import digest

# -- Functions as nodes ----------------------------------------------------------------------------------------


P = ParamSpec("P")
R = TypeVar("R", bound=NodeResult | Awaitable[NodeResult])
Names: TypeAlias = tuple[str, ...] | list[str] | AbstractSet[str]
"""Several names. A text does not count, although it is a collection of texts."""


class FunctionNode(Erased, Node, Generic[P, R], kind="function"):
    """A node made of a function, usually by `@node`. Calling it calls the function."""

    look = "code"

    fn: Callable[..., R] = Field(repr=False)
    """The function; sync or async."""
    declared: tuple[str, ...] = (DONE,)
    """Its outcomes."""
    name: str = ""
    """Its name in error messages."""
    wanted: tuple[Wanted, ...] = ()
    """Its arguments."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.declared

    @cached_property
    def is_async(self) -> bool:
        """True if calling the function returns an awaitable."""
        return is_async(self.fn)

    @property
    def sees_tools(self) -> bool:
        return any(want.gives == "ctx" for want in self.wanted)

    @property
    def takes_tools(self) -> bool:
        """True if `tools=` declares that it calls tools. A `ctx` parameter alone does not mean that."""
        return self.tools is not None

    @property
    def asks_model(self) -> bool:
        """True if it can call a model through its context, and await the reply."""
        return self.sees_tools and self.awaits

    @property
    def calls_tools(self) -> bool:
        return self.sees_tools and bool(self.tools)

    @property
    def does(self) -> str:
        """See `Node.does`."""
        if self.model is not None and self.asks_model:
            return "asks a model, calls tools" if self.calls_tools else "asks a model"
        return "calls tools" if self.calls_tools else "runs code"

    @property
    def awaits(self) -> bool:
        """True unless the function certainly awaits nothing, such as a tool call."""
        return self.is_async or is_async(inspect.unwrap(self.fn)) or not returns_plainly(self.fn)

    @cached_property
    def _typed_updates(self) -> frozenset[str] | None:
        return declared_updates(self.fn)

    @property
    def updates(self) -> frozenset[str] | None:
        """The fields in `writes`, else those that the return annotation names."""
        return self._typed_updates if self.writes is None else self.writes

    @cached_property
    def _may_update(self) -> frozenset[str] | None:
        """See `Node._may_update`."""
        return self.writes if self.writes is not None else self.updates

    @property
    def ref(self) -> str | None:
        """`module:attr` if the function can be imported by it, None for a lambda or a closure."""
        ref = ref_of(self.fn)
        if ref is None:
            return None
        found = find(ref)
        return ref if found is self.fn or (isinstance(found, FunctionNode) and found.fn is self.fn) else None

    def _receives(self, name: str) -> Collection[str] | None:
        return None if self.sees_tools else super()._receives(name)

    def _code_names(self) -> dict[str, object]:
        """See `Node._code_names`: the reference to the function, and its name if it has no reference."""
        return {"ref": self.ref} if self.ref is not None else {"ref": None, "name": self.name}

    @property
    def sync_fn(self) -> Callable[[Any, Any], object] | None:
        return None if self.is_async else self.call

    @cached_property
    def _is_coroutine_function(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)

    @cached_property
    def _wants_state_only(self) -> bool:
        return len(self.wanted) == 1 and self.wanted[0].positional and self.wanted[0].gives == "state"

    @cached_property
    def _is_overridden(self) -> bool:
        """Return True if a subclass overrides how the function is called."""
        return type(self).call is not FunctionNode.call or type(self).run is not FunctionNode.run

    @cached_property
    def _arguments(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return the arguments to pass: positional ones, and those by name."""
        positional = tuple(want.gives for want in self.wanted if want.positional)
        return positional, tuple((want.parameter, want.gives) for want in self.wanted if not want.positional)

    def call(self, state: object, ctx: object) -> object:
        """Call the function with the arguments that it declares.

        Args:
            state: the view of the state.
            ctx: the context.

        Returns:
            The function's result; an awaitable if the function is async.
        """
        if self._wants_state_only:
            return self.fn(state)
        positional, named = self._arguments
        values = [state if one == "state" else ctx if one == "ctx" else getattr(ctx, one) for one in positional]
        if not named:
            return self.fn(*values)
        given = {name: state if one == "state" else ctx if one == "ctx" else getattr(ctx, one) for name, one in named}
        return self.fn(*values, **given)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    async def run(self, state: object, ctx: object) -> object:
        result = self.call(state, ctx)
        return await result if is_awaitable(result) else result

    def _begin(self, state: object, ctx: object) -> Awaitable[object]:
        if self._is_coroutine_function and not self._is_overridden:
            return cast(Awaitable[object], self.fn(state) if self._wants_state_only else self.call(state, ctx))
        return self.run(state, ctx)


class _NodeDecorator(Protocol):
    def __call__(self, fn: Callable[P, R], /) -> FunctionNode[P, R]: ...


@overload
def node(fn: Callable[P, R], /) -> FunctionNode[P, R]: ...
@overload
def node(
    *,
    outcomes: Names | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    join: Join = None,
    rest: Rest = "drop",
    pool: str | None = None,
    reads: Names | None = None,
    writes: Names | None = None,
    version: str | None = None,
    effect: Effect = "idempotent",
    cache: float | None = None,
    model: str | None = None,
    tools: Collection[object] | None = None,
    name: str | None = None,
) -> _NodeDecorator: ...
def node(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    outcomes: Names | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    join: Join = None,
    rest: Rest = "drop",
    pool: str | None = None,
    reads: Names | None = None,
    writes: Names | None = None,
    version: str | None = None,
    effect: Effect = "idempotent",
    cache: float | None = None,
    model: str | None = None,
    tools: Collection[object] | None = None,
    name: str | None = None,
) -> FunctionNode[..., Any] | _NodeDecorator:
    """Make a node from a sync or async function: `@node` or `@node(effect="pure")`.

    The function's arguments are injected by name or annotation: `state`, `ctx`, `item`, `deps`. It returns an
    `Outcome`, a mapping (the update) or None; the last two mean the outcome `done`.

    Args:
        fn: the function; None when the decorator has options.
        outcomes: the outcomes, if the return annotation does not list them as `Outcome[Literal[...]]`.
        retry: as for `Node`.
        timeout: seconds that one attempt may take; None for no limit.
        join: as for `Node`.
        rest: as for `Node`.
        pool: as for `Node`.
        reads: as for `Node`.
        writes: as for `Node`.
        version: as for `Node`.
        effect: as for `Node`.
        cache: as for `Node`.
        model: as for `Node`.
        tools: as for `Node`.
        name: the name for messages. Default: the function's name.

    Returns:
        The node, or a decorator that makes it.

    Raises:
        GraphError: the function has a parameter that a node cannot receive, or its outcomes are not listed.
        pydantic.ValidationError: an option is invalid.
    """
    around = sys._getframe(1).f_locals
    options: dict[str, object] = {
        "retry": retry,
        "timeout": timeout,
        "join": join,
        "reads": reads,
        "writes": writes,
        "version": version,
        "effect": effect,
        "model": model,
        "tools": tools,
        "pool": pool,
        "cache": cache,
    }
    given = {key: value for key, value in options.items() if value is not None}
    if effect == "idempotent":
        del given["effect"]
    if rest != "drop":
        given["rest"] = rest

    def wrap(fn: Callable[P, R], /) -> FunctionNode[P, R]:
        return function_node(fn, outcomes=outcomes, name=name, around=around, **given)

    return wrap if fn is None else wrap(fn)


def function_node(
    fn: Callable[P, R],
    *,
    outcomes: Names | None = None,
    name: str | None = None,
    around: Mapping[str, object] | None = None,
    **options: Any,
) -> FunctionNode[P, R]:
    """Make a node of a function.

    Args:
        around: names that its annotations may use, in addition to its module's globals.

    Raises:
        GraphError: the function is a generator, or its outcomes or arguments are not those of a node.
    """
    if isinstance(fn, FunctionNode):
        return fn.with_(**options, **({} if outcomes is None else {"declared": tuple(outcomes)}))
    title = name or getattr(fn, "__name__", None) or getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__)
    what = f"node function {title}"
    if isinstance(outcomes, str) or not isinstance(outcomes, Iterable | None):
        raise GraphError(f"{what}: outcomes must be a list of names: write outcomes=({outcomes!r},)")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise GraphError(f"{what} is a generator: return an Outcome or an update instead of yielding")
    declared = tuple(outcomes) if outcomes is not None else declared_outcomes(fn, what, around) or (DONE,)
    wanted = wanted_arguments(fn, what, around)
    return FunctionNode(fn=fn, declared=declared, name=title, wanted=wanted, **options)


# -- Digests of code, to decide whether a stored result comes from the same function ---------------------------
# A digest covers the function's bytecode, its defaults, its closure, and the constants of modules that it reads. It
# does not cover the functions that it calls; a change in them needs another `version=`. Bytecode, and with it the
# digests, differs between versions of Python.


_DEEPEST = 20
"""The most levels of nested functions that a digest covers."""
_CONSTANTS = frozenset({str, bytes, bool, int, float, complex})
"""Types of the constants of modules that count, alone and in tuples and frozen sets. Subclasses may be anything."""


class Undigestible(ValueError):
    """Raised when code depends on an object without a JSON form; the message names the object."""


def node_code_digest(node: Node) -> str:
    """Return the digest of a node's own code; empty if the node's kind is part of the library and calls no user code.

    With `version=`, objects without a JSON form are left out: the version represents them.

    Args:
        node: the node.

    Raises:
        Undigestible: the code depends on an object that has no JSON form, and the node has no `version`.
    """
    parts = [_digested(function, node.version is not None) for function in _functions_of(node)]
    return digest(parts) if parts else ""


def code_digest(graph: GraphDefinition) -> str:
    """Return the digest of the code of all nodes of a graph, also inside of subgraphs; see `function_digest`."""
    found: list[list[str]] = []
    for name, one in sorted(graph.nodes.items()):
        found.append([name, *map(function_digest, _functions_of(one))])
        if one.subgraph is not None:
            found.append([name, code_digest(one.subgraph)])
    return digest(found)


def function_digest(function: Callable[..., object]) -> str:
    """Return the digest of a function's code. Objects without a JSON form that it depends on count by their types."""
    return digest(_digested(function, lenient=True))


def _functions_of(node: Node) -> Iterator[Callable[..., object]]:
    """Yield the functions of a node that are not part of the library."""
    if isinstance(node, FunctionNode):
        yield node.fn
        return
    for cls in type(node).__mro__:
        if issubclass(cls, Node) and not is_shipped(cls):
            own = (value for _, value in sorted(vars(cls).items()) if isinstance(value, FunctionType))
            yield from (value for value in own if value.__module__ == cls.__module__)  # pydantic's own
    ref = getattr(node, node.calls_code) if node.calls_code is not None else None
    found: object = find(ref) if isinstance(ref, str) else ref
    if callable(found):
        yield found


def _digested(function: Callable[..., object], lenient: bool, deep: int = 0) -> object:
    found: Any = inspect.unwrap(function)
    if isinstance(found, functools.partial):
        inner = _digested(found.func, lenient, deep + 1)
        return [inner, *(_value(one, lenient, "an argument", deep) for one in (found.args, dict(found.keywords)))]
    if isinstance(found, FunctionNode):
        return _digested(found.fn, lenient, deep + 1)
    if isinstance(found, MethodType):
        return [_value(found.__self__, lenient, "its object", deep), _digested(found.__func__, lenient, deep + 1)]
    if not isinstance(found, FunctionType):
        call = inspect.getattr_static(type(found), "__call__", None)
        if isinstance(call, FunctionType):
            return [_value(found, lenient, "its object", deep), _digested(call, lenient, deep + 1)]
        return [getattr(found, "__module__", ""), getattr(found, "__qualname__", "")]  # a built-in function
    cells = zip(found.__code__.co_freevars, found.__closure__ or (), strict=True)
    closed = {name: _cell(cell, lenient, f"{name!r}", deep) for name, cell in cells}
    defaults = [_value(one, lenient, "a default", deep) for one in (found.__defaults__, found.__kwdefaults__)]
    return [_code(found.__code__), closed, defaults, _read_constants(found)]


def _cell(cell: Any, lenient: bool, what: str, deep: int) -> object:
    try:
        value = cell.cell_contents
    except ValueError:  # not assigned yet
        return None
    return _value(value, lenient, what, deep)


def _value(value: object, lenient: bool, what: str, deep: int) -> object:
    if deep < _DEEPEST and isinstance(value, FunctionType | functools.partial | FunctionNode):
        return _digested(value, lenient, deep + 1)
    if isinstance(value, type):  # as in the cell of `super()`
        return f"{value.__module__}.{value.__qualname__}"
    try:
        return digest(value)
    except (TypeError, ValueError, RecursionError):
        if lenient:
            return type(value).__qualname__
        raise Undigestible(f"{what}, of type {type(value).__qualname__}") from None


def _read_constants(function: FunctionType) -> dict[str, object]:
    """Return the constants that a function reads from its module, and from modules that it names, such as prompts."""
    found = {}
    for name, attribute in _global_reads(function.__code__):
        value = function.__globals__.get(name)
        if attribute:
            value = vars(value).get(attribute) if isinstance(value, ModuleType) else None
        if value is not None and _is_constant(value):
            found[f"{name}.{attribute}"] = _constant(value)
    return found


@functools.lru_cache(1024)
def _global_reads(code: CodeType) -> frozenset[tuple[str, str]]:
    """Return the global names that code reads: each alone, and with the attribute that it reads of it.

    Names that the code assigns are counters and the like, and those with two underscores differ between machines.
    """
    read, assigned, before = set(), set(), ""
    for step in dis.get_instructions(code):
        name, before = before, ""
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            before = step.argval
            read.add((before, ""))
        elif name and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            read.add((name, step.argval))
        elif step.opname == "STORE_GLOBAL":
            assigned.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            read |= _global_reads(inner)
    return frozenset(one for one in read if one[0] not in assigned and not any(part.startswith("__") for part in one))


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return value is None or type(value) in _CONSTANTS


def _code(code: CodeType) -> object:
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    return [code.co_code.hex(), [_constant(one) for one in code.co_consts], [[*part] for part in names]]


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(one) for one in value]
    if isinstance(value, frozenset):  # their order differs between processes
        return sorted(repr(_constant(one)) for one in value)
    return repr(value)
