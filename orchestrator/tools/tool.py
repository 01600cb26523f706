"""Tools: functions, methods and classes with a `call` that a model may call.

@tool(risk="read", effect="read")
def weather(city: str) -> str:
    \"\"\"The weather now.

    Args:
        city: name of the city.
    \"\"\"
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections import abc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Hashable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio import CapacityLimiter
from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from orchestrator.errors import (
    AgentError,
    EffectFailed,
    InvalidArguments,
    SecretInState,
    ToolError,
    described,
    message_of,
)
from orchestrator.graph.codec import Codec, explain, parts_of
from orchestrator.graph.limits import Retry
from orchestrator.graph.signatures import is_async, is_awaitable
from orchestrator.graph.state import type_schema
from orchestrator.json import FrozenObject, JsonObject, digest, frozen
from orchestrator.models.messages import Image
from orchestrator.tools.result import (
    EFFECTS,
    KEPT,
    RISKS,
    SHOWN,
    Blob,
    Effect,
    Gathered,
    Risk,
    ToolFailure,
    ToolResult,
    refused,
    result_of,
)
from orchestrator.tools.schema import Spec, Wants, bare_schema, spec_of, wants_of
from orchestrator.tools.validation import coerced, faults, schema_faults
from orchestrator.user_code import contained, fenced, pass_fence, waits_at_fence
from orchestrator.values import Unfit

if TYPE_CHECKING:
    from orchestrator.tools.pool import InstanceLease, Pool


_anything = Codec(Any)
_BODIES = ("execute", "call")
_MOST_FAULTS = 20
"""Faults listed in an error: arguments with a long list could have as many as the list has items."""
_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_.-]+(?: [A-Za-z0-9_.-]+)*+")
"""Names may have spaces, for people and for models that write calls as text; in requests these become `_`."""
_CHANGEABLE = frozenset(
    (
        "name",
        "description",
        "parameters",
        "risk",
        "effect",
        "timeout",
        "retry",
        "ends",
        "untrusted",
        "group",
        "reconcile",
        "max_shown",
        "max_kept",
    )
)
"""Attributes that `Tool.with_` changes."""


_NO_OUTPUT = frozenset(
    {
        ToolResult,
        ToolFailure,
        Image,
        Blob,
        bytes,
        abc.Iterable,
        abc.Iterator,
        Generator,
        abc.AsyncIterable,
        abc.AsyncIterator,
        AsyncGenerator,
    }
)
"""Return types that do not describe a tool's output."""


def checked(name: str, risk: object, effect: object, timeout: object) -> None:
    if not _NAME.fullmatch(name):
        raise TypeError(
            f"tool {name!r} is not a name that a model can call: use ASCII letters, digits, _ . - and single spaces"
        )
    if risk not in RISKS:
        raise TypeError(f"tool {name!r}: risk {risk!r} is not one of {', '.join(RISKS)}")
    if effect not in EFFECTS:
        raise TypeError(f"tool {name!r}: effect {effect!r} is not one of {', '.join(EFFECTS)}")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise TypeError(f"tool {name!r}: timeout {timeout!r} is not a positive number of seconds")


def _inside(error: Exception) -> list[Exception]:
    """Return the errors of a group and of nested groups; a single error alone."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [found for one in error.exceptions for found in _inside(one)]


class Tool:
    """Base class of all tools. A subclass sets its name and defines `call` (or `execute`), sync or async:

        class Adder(Tool):
            name = "adder"
            risk = "none"

            def __init__(self, base: int) -> None:
                self.base = base

            def call(self, a: int) -> int:
                \"\"\"Add to the base.\"\"\"
                return self.base + a

    Parameters and description come from the signature, the type hints and the docstring. If a class sets `parameters`
    to a JSON Schema, that schema is used. `await adder(a=1)` returns the value of `call` and raises its errors;
    `invoke` returns a `ToolResult` and raises nothing.

    A parameter named `ctx` or annotated `Context` receives the context of the calling step. A parameter named
    `idempotency_key` or annotated `IdempotencyKey` receives the key of the call. Neither is part of the schema.

    A tool can report progress: each string that a generator yields is a live event `progress`, and the strings joined
    are its output; `ctx.progress` reports progress that is not output.

    An irreversible tool can have a method `reconcile(key)`, sync or async, that finds the outcome of a call that a
    crash left unknown. It returns the result of the call, or None if the call did not happen. Without `reconcile`, or
    if it raises, a person is asked.
    """

    name: str
    """Name for models. Default: the class's name."""
    description: str
    """Description for models. Default: the docstring."""
    parameters: JsonObject
    """JSON Schema of its arguments."""
    output_schema: JsonObject | None
    """JSON Schema of its output, for a person who enters the result of a call. Default: the schema of the return type;
    None if that is unknown."""
    risk: Risk = "dangerous"
    """Risk of a call: `none`, `read`, `write` or `dangerous`."""
    effect: Effect = "irreversible"
    """Kind of effect, which decides whether a call may be repeated if a crash left its outcome unknown."""
    timeout: float | None = None
    """Seconds that one call may take; None: no limit."""
    retry: Retry | None = None
    """Policy by which the executor retries a failed call. A call of an irreversible tool is not retried after a broken
    connection or a time-out, which leave its outcome unknown; an error in `on=` declares that the call did not
    happen."""
    ends: bool = False
    """True if a successful call of the tool ends the agent's work."""
    untrusted: bool = False
    """True if its results contain text from outside (web pages, mails), which may try to instruct a model. Proofs
    follow such results to calls that change something."""
    group: str | None = None
    """The group that it belongs to."""
    max_shown: int = SHOWN
    """Maximum number of characters of a result that a model is shown: start, end, and the length of the missing part.
    """
    max_kept: int = KEPT
    """Maximum number of characters of a result that the journal stores and the caller receives."""
    pool: Pool[Any] | None = None
    """Pool of the instances for its parameter `env`, which is not part of the schema. A call in a run gets the run's
    own instance. Other calls get the instance of their `id`, `await it(..., id="a")`, or one for this call alone."""

    propagates: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors that propagate to the caller instead of becoming a result."""
    continues: ClassVar[bool] = False
    """True if a call repeated under its key continues the earlier one, like a call of a graph."""

    _body: ClassVar[str | None] = None
    _spec_: Spec | None = None
    _wants_: Wants | None = None

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls._body = next((body for body in _BODIES if callable(getattr(cls, body, None))), None)
        cls._spec_ = cls._wants_ = None
        checked(cls.__name__, cls.risk, cls.effect, cls.timeout)
        if cls._body is not None:
            wants_of(getattr(cls, cls._body), cls.__name__, bound=True)

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Any:
            """Return name, description or parameters if the class does not set them."""
            if attribute == "name":
                return type(self).__name__
            if attribute == "parameters":
                return self._spec.parameters
            if attribute == "description":
                return self._spec.description or inspect.cleandoc(self._own_doc())
            if attribute == "output_schema":
                return self._output_schema()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")

    # -- specification ---------------------------------------------------------------------------------------------

    def _own_doc(self) -> str:
        """Return the docstring of the class."""
        return type(self).__dict__.get("__doc__") or ""

    def _output_schema(self) -> JsonObject | None:
        returns = self._spec.returns
        known = not isinstance(returns, str) and _NO_OUTPUT.isdisjoint(parts_of(returns))
        return type_schema(returns, "serialization") if known else None

    def _function(self) -> Callable[..., Any]:
        if self._body is None:
            raise TypeError(
                f"tool class {type(self).__name__} does nothing: define call(self, ...) or execute(self, ...)"
            )
        return cast(Callable[..., Any], getattr(self, self._body))

    @property
    def _wants(self) -> Wants:
        if self._wants_ is None:
            self._wants_ = wants_of(self._function(), self.name, bound=False, pooled=self.pool is not None)
        return self._wants_

    @property
    def _spec(self) -> Spec:
        if self._spec_ is None:
            self._spec_ = spec_of(self._function(), self.name, self._wants)
        return self._spec_

    @property
    def _declared(self) -> bool:
        """Return True if the tool sets its schema, instead of deriving it from type hints."""
        return "parameters" in vars(self) or any("parameters" in vars(cls) for cls in type(self).__mro__)

    def check_schema(self) -> None:
        """Check the class, and the schema if it is not derived from type hints.

        Raises:
            TypeError: the class has neither `call` nor `execute`, or `parameters` is not a JSON Schema.
            ValueError: the schema has an unknown type, a misspelt keyword, a reference that leads nowhere, or a
                malformed keyword; the message names it.
        """
        self._function()
        if not self._declared:
            return
        if not isinstance(self.parameters, Mapping):
            raise TypeError(
                f"tool {self.name!r}: parameters is {self.parameters!r:.60}, not a JSON Schema; "
                "for a pydantic model write parameters = TheModel.model_json_schema()"
            )
        for fault in schema_faults(self.parameters):
            raise ValueError(f"tool {self.name!r}: its schema {fault}")
        if (kind := self.parameters.get("type", "object")) != "object":
            raise ValueError(f"tool {self.name!r}: its schema is of type {kind!r}, but arguments must be an 'object'")

    def to_param(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the tool in the form that models receive.

        Args:
            strict: use the form of providers' strict mode: every property is required, and optional ones may be null. A
                schema that strict mode cannot express stays unchanged and is not marked as strict. Models with
                `Profile(strict_tools=True)` do this automatically, and treat such nulls as omitted.

        Returns:
            The tool as a `function` in the format of the OpenAI API.
        """
        from orchestrator.models.strict import strict_schema  # imported late: it is slower to import than this module

        function: dict[str, Any] = {
            "name": self.name,
            "description": self.description or "",
            "parameters": dict(self.parameters),
        }
        written = strict_schema(self.parameters, nullable=True) if strict else None
        if written is not None:
            function |= {"parameters": written, "strict": True}
        return {"type": "function", "function": function}

    @property
    def offered(self) -> FrozenObject:
        """The result of `to_param`, made again if name, description or parameters are others."""
        made = self.name, self.description, self.parameters
        known = self.__dict__.get("_offered")
        if known is None or known[0] != made[:2] or known[1] is not made[2] or type(self).to_param is not Tool.to_param:
            known = self.__dict__["_offered"] = made[:2], made[2], frozen(self.to_param())
        found: FrozenObject = known[2]
        return found

    @property
    def schema_digest(self) -> str:
        """Return a digest of the tool's name and argument schema, without descriptions."""
        return digest([self.name, bare_schema(self.parameters)])

    @property
    def approval_digest(self) -> str:
        """Return a digest of what an approval of a call is for: if it changes, approval is asked for again."""
        return self.schema_digest

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some attributes changed, such as `name` or `risk`.

        Args:
            changes: the changed attributes, by name.

        Returns:
            The new tool.

        Raises:
            TypeError: the tool has no such attribute.
        """
        unknown = sorted(set(changes) - _CHANGEABLE)
        if unknown:
            known = ", ".join(sorted(_CHANGEABLE))
            raise TypeError(f"tool {self.name!r} has no {unknown[0]!r} to change; it has {known}")
        found = copy.copy(self)
        for attribute, value in changes.items():
            setattr(found, attribute, value)
        checked(found.name, found.risk, found.effect, found.timeout)
        if "parameters" in changes:
            found.check_schema()
        return found

    def __repr__(self) -> str:
        return f"<Tool {self.name} risk={self.risk} effect={self.effect}>"

    # -- arguments -------------------------------------------------------------------------------------------------

    def validate(self, args: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments as the tool will receive them.

        Strings are converted to the types that the schema names (`"60"` to the number 60), except where it accepts a
        string or names no type. Nothing is evaluated. Validating validated arguments changes nothing.

        Args:
            args: the arguments by name.

        Returns:
            The arguments as plain JSON.

        Raises:
            AgentError: names every argument that is missing, unknown or of the wrong type.
            InvalidArguments: the arguments cannot be stored; an `AgentError` and an `InvalidValue`.
            SecretInState: an argument contains a secret.
        """
        schema = self.parameters
        try:
            plain = _anything.encode(dict(args))
        except SecretInState:
            raise SecretInState(
                f"tool {self.name!r}: an argument contains a secret, and arguments are journaled: "
                "take it from ctx.deps in the tool, or from an 'env:NAME' reference"
            ) from None
        except Unfit as error:
            raise InvalidArguments(
                f"tool {self.name!r}: the arguments are not JSON: {error}", where="arguments"
            ) from None
        given = cast("dict[str, Any]", plain)
        properties: Mapping[str, Any] = cast("Mapping[str, Any]", schema.get("properties") or {})
        others = schema.get("additionalProperties", False)
        found = [
            f"{name!r} is missing" for name in cast("list[str]", schema.get("required") or ()) if name not in given
        ]
        read: dict[str, Any] = {}
        for name, value in given.items():
            inner = properties.get(name, others)
            if inner is False:
                found.append(f"{name!r} is unknown")
                continue
            read[name] = coerced(value, inner, schema)
            found += self._argument_faults(name, read[name], inner)
        if found:
            if len(found) > _MOST_FAULTS:
                found[_MOST_FAULTS:] = [f"and {len(found) - _MOST_FAULTS} more faults"]
            takes = f"it takes {', '.join(properties)}" if properties else "it takes none"
            raise AgentError(f"tool {self.name!r}: wrong arguments: {'; '.join(found)}; {takes}")
        return read

    def _argument_faults(self, name: str, value: Any, schema: Any) -> list[str]:
        found = faults(value, schema, self.parameters, repr(name))
        if found or self._declared or self._spec.type_of(name) is None:
            return found
        try:
            self._load(name, value)
        except ValidationError as error:
            return [f"{name!r}: {explain(error)}"]
        return []

    def _load(self, name: str, value: Any) -> Any:
        kind = self._spec.type_of(name)
        if kind is None:
            return value
        try:
            return kind.validate_json(to_json(value), strict=True)
        except ValidationError:
            schema = cast("Mapping[str, Any]", self.parameters.get("properties") or {}).get(name, {})
            if "default" not in schema or schema["default"] != value:
                raise
        made = self._spec.defaults.get(name)  # a default need not fit its own type
        name = self._spec.names.get(name, name)
        return next(one.default for one in self._wants.given if one.name == name) if made is None else made()

    # -- calls -----------------------------------------------------------------------------------------------------

    async def perform(self, args: Mapping[str, object], *, key: str | None = None, ctx: object = None) -> ToolResult:
        """Call the tool with validated arguments. Its errors are raised; a group of one error is raised as that error.

        Args:
            args: the result of `validate`.
            key: the call's idempotency key.
            ctx: context of the step that makes the call.

        Returns:
            The result of the call.

        Raises:
            TimeoutError: the call took longer than the tool's `timeout`.
            ResultRefused: the return value does not fit into a result.
        """
        pooled: dict[str, JsonValue] = {}
        waits_at_fence(key)
        try:
            value = await self._call(args, key, ctx, pooled=pooled)
        except ExceptionGroup as group:  # a task group of the tool wraps the error
            inner = _inside(group)
            if len(inner) == 1:
                raise inner[0] from group
            raise
        try:
            result = result_of(value)
            return result.model_copy(update={"metadata": {**pooled, **result.metadata}}) if pooled else result
        except Exception as error:
            raise refused(error, value) from error

    async def invoke(self, args: Mapping[str, object], *, key: str | None = None, ctx: object = None) -> ToolResult:
        """Call the tool as `perform` does, and return every error as a result.

        Args:
            args: the result of `validate`.
            key: the call's idempotency key.
            ctx: context of the step that makes the call.

        Returns:
            The result; a `ToolFailure` if the tool raised an error.
        """
        try:
            with contained():
                return await self.perform(args, key=key, ctx=ctx)
        except Exception as error:
            return self.failure(error)

    def failure(self, error: Exception) -> ToolFailure:
        """Return the result that represents an error of the tool.

        Args:
            error: the error that the tool raised.

        Returns:
            A failed result with the error's message.
        """
        if isinstance(error, ToolError):
            return ToolFailure(error=error.message if error.message.strip() else type(error).__name__)
        kind = {"exception": error.type if isinstance(error, EffectFailed) else type(error).__name__}
        words = f"Unexpected error executing tool {self.name}: {described(error)}"
        if isinstance(error, ExceptionGroup):
            named = (f"; {type(one).__name__}: {message_of(one)}" for one in _inside(error)[:_MOST_FAULTS])
            words += "".join(one.rstrip(": ") for one in named)
        return ToolFailure(error=words, metadata=dict(kind))

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool like a function: arguments are validated, and errors are raised.

        Args:
            args: the arguments by position.
            kwargs: the arguments by name. A tool with a pool also takes `id`, the id of the instance to use.

        Returns:
            The value of the tool.

        Raises:
            AgentError: the arguments are not valid.
        """
        wants = self._wants
        whose = kwargs.pop("id", None) if self.pool is not None else None
        given = self._by_name(args, kwargs)
        key = next((given.pop(name) for name in wants.key if name in given), None)
        ctx = next((given.pop(name) for name in wants.ctx if name in given), None)
        return await self._call(self.validate(given), key, ctx, whose)

    async def release(self, *, id: Hashable) -> bool:  # noqa: A002  a public name
        """Release the instance of an id in the tool's pool.

        Args:
            id: the id.

        Returns:
            False if the id has no instance.
        """
        return self.pool is not None and await self.pool.release(id)

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        aliases = {} if self._declared else {name: alias for alias, name in self._spec.names.items()}
        names = [aliases.get(parameter.name, parameter.name) for parameter in self._wants.given]
        if self._declared and not names:
            names = list(cast("Mapping[str, object]", self.parameters.get("properties") or {}))
        if len(args) > len(names):
            raise AgentError(
                f"tool {self.name!r} takes at most {len(names)} positional arguments, but {len(args)} were given"
            )
        given = dict(zip(names, args, strict=False))
        kwargs = {aliases.get(name, name): value for name, value in kwargs.items()}
        twice = sorted(given.keys() & kwargs.keys())
        if twice:
            raise AgentError(f"tool {self.name!r}: {twice[0]!r} is given twice, by position and by name")
        return {**given, **kwargs}

    async def _call(
        self,
        args: Mapping[str, object],
        key: str | None,
        ctx: object,
        whose: Hashable = None,
        pooled: dict[str, JsonValue] | None = None,
    ) -> object:
        if self.pool is None:
            return await self._in_time(self._bind(args, key, ctx), key, ctx)
        holder = getattr(ctx, "holder", None) if whose is None else whose
        async with self.pool.lease(holder, aside=getattr(ctx, "while_waiting", nullcontext)) as lease:
            if pooled is not None:
                pooled |= lease.metadata()
            call = self._bind(args, key, ctx, lease.value)
            if not is_async(call):
                call = lease.in_thread(call)
            return await self._in_time(call, key, ctx, lease)

    async def _in_time(
        self, call: Callable[[], Any], key: str | None, ctx: object, lease: InstanceLease[Any] | None = None
    ) -> object:
        if self.timeout is None:
            return await self._run(call, key, ctx, lease)
        with anyio.move_on_after(self.timeout) as scope:
            return await self._run(call, key, ctx, lease)
        assert scope.cancelled_caught
        if lease is not None:
            lease.broken = True
        raise TimeoutError(f"tool {self.name!r} took longer than {self.timeout:g} s")

    async def _run(
        self, call: Callable[[], Any], key: str | None, ctx: object, lease: InstanceLease[Any] | None
    ) -> object:
        found = await run_function(call)
        if not issubclass(type(found), AsyncGenerator | Generator):  # not isinstance: a proxy's `__class__` may raise
            return found
        progress = getattr(ctx, "progress", None)

        async def tell(text: str) -> None:
            if progress is not None:
                await progress(text, key=key or "")

        step = lease.in_thread if lease is not None else None
        return await collected(found, tell, most=self.max_kept, step=step)

    def _bind(self, args: Mapping[str, object], key: str | None, ctx: object, env: object = None) -> Callable[[], Any]:
        function, wants = self._function(), self._wants
        given: dict[str, Any] = dict(args)
        if not self._declared:
            try:
                given = {name: self._load(name, value) for name, value in args.items()}
            except ValidationError as error:
                raise AgentError(f"tool {self.name!r}: wrong arguments: {explain(error)}") from None
            given |= {name: default() for name, default in self._spec.defaults.items() if name not in given}
            given = {self._spec.names.get(name, name): value for name, value in given.items()}
        given |= dict.fromkeys(wants.key, key) | dict.fromkeys(wants.ctx, ctx) | dict.fromkeys(wants.env, env)
        first: list[Any] = []
        for parameter in wants.positional:
            if parameter.name not in given and not any(later.name in given for later in wants.positional):
                break
            first.append(given.pop(parameter.name, parameter.default))
        return partial(function, *first, **given)


_OVER = object()
_Around: TypeAlias = Callable[[Callable[[], Any]], Callable[[], Any]]


async def run_function(
    call: Callable[[], object], *, inline: bool = False, limiter: CapacityLimiter | None = None
) -> Any:
    """Call a function and return its result, awaited if it is awaitable.

    A sync function runs in a thread, which continues if the caller is cancelled. In both cases the call passes the
    run's fence immediately before it is made: another executor may have taken the run while it waited for a thread.

    Args:
        inline: run a sync function in this thread, because it is fast.
        limiter: limit of the number of threads.
    """
    if inline or is_async(call):
        await pass_fence()
        found = call()
    else:
        run = fenced(call)
        # Wrapped: trio does not accept a coroutine returned from a thread, which a sync function may return.
        (found,) = await anyio.to_thread.run_sync(lambda: (run(),), abandon_on_cancel=True, limiter=limiter)
    return await found if is_awaitable(found) else found


async def collected(
    found: AsyncGenerator[object, object] | Generator[object, object, object],
    tell: Callable[[str], Awaitable[None]],
    *,
    most: int,
    step: _Around | None = None,
) -> Any:
    """Run a generator, sync or async, and return its strings joined, or the last value that is not a string.

    Args:
        tell: receives each string as it arrives.
        most: characters that are kept of the strings; of longer text, start and end, see `cut`.
        step: wraps each step of a sync generator, which runs in a thread.
    """
    text = Gathered(most)
    result: object = _OVER
    async with _pieces(found, step) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                text.add(piece)
                await tell(piece)
            else:
                result = piece
            # A generator that never waits could otherwise not be stopped, and would block all other tasks.
            await anyio.lowlevel.checkpoint()
    return text.whole() if result is _OVER else result


@asynccontextmanager
async def _pieces(
    found: AsyncGenerator[object, object] | Generator[object, object, object], step: _Around | None
) -> AsyncIterator[AsyncGenerator[object, object]]:
    if isinstance(found, AsyncGenerator):
        async with aclosing(found):
            yield found
        return
    async with aclosing(_threaded(found, step)) as pieces:
        yield pieces


async def _threaded(found: Generator[object, object, object], step: _Around | None) -> AsyncGenerator[object, object]:
    """Run a sync generator, each step in a thread."""
    go: Callable[[], object] = fenced(partial(next, found, _OVER))  # the generator starts with its first step
    try:
        while True:
            piece = await anyio.to_thread.run_sync(go if step is None else step(go), abandon_on_cancel=True)
            if piece is _OVER:
                return
            yield piece
    finally:
        with contextlib.suppress(ValueError):  # the abandoned thread is still running it
            found.close()
