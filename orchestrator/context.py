"""The context of a node, next to its state: models, tools, effects, questions, and its position in the run.

A node accesses the outside only through its context, so that each call is journaled, counts toward the run's limits,
and is not repeated after a crash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, overload

from orchestrator.graph.typevars import ContextT, DepsT

if TYPE_CHECKING:
    from orchestrator.graph.limits import LimitsLeft
    from orchestrator.kernel.question import Answer, Approve, Deny, QuestionKind, Value
    from orchestrator.kernel.records import EffectClass, Failure
    from orchestrator.memory import Memory
    from orchestrator.models.base import Model
    from orchestrator.tools.result import ToolResult
    from orchestrator.tools.toolbox import Toolbox

T = TypeVar("T")

__all__ = ["Context"]


class Context(ABC, Generic[DepsT, ContextT]):
    """Context of an attempt of a step.

    Annotate `ctx: Context[MyDeps]` to have `ctx.deps` typed, and `ctx: Context[MyDeps, MyContext]` for `ctx.context`.
    """

    __slots__ = ()

    # -- its position ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The run's id."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, str]:
        """The run's labels."""

    @property
    @abstractmethod
    def node(self) -> str:
        """The node's name in its graph."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The branch that the step runs in, such as `plan.2`; empty outside forks and subgraphs."""

    @property
    @abstractmethod
    def attempt(self) -> int:
        """Number of the attempt, from 1."""

    @property
    @abstractmethod
    def item(self) -> object:
        """The item of the innermost open map; None outside maps. A copy: changing it changes nothing else."""

    @property
    @abstractmethod
    def items(self) -> Sequence[object]:
        """The items of all open maps, the innermost last."""

    @property
    @abstractmethod
    def error(self) -> Failure | None:
        """The failure, if an edge for `error`, `timeout`, `failed`, `too_long` or `exhausted` led here; else None."""

    @property
    @abstractmethod
    def limits(self) -> LimitsLeft:
        """The remaining limits of the run."""

    # -- its resources -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def deps(self) -> DepsT:
        """The `deps` of the executor: clients, connections, secrets. Never journaled."""

    @property
    @abstractmethod
    def context(self) -> ContextT:
        """The `context` that the run was started or resumed with: a user, a session, a request. Never journaled.

        None if the run has no context.
        """

    @property
    @abstractmethod
    def model(self) -> Model:
        """The node's model. Its calls are journaled, and a reply that arrived is never requested again.

        Raises:
            GraphUnknown: the executor has no such model.
        """

    @property
    @abstractmethod
    def models(self) -> Mapping[str, Model]:
        """All of the executor's named models."""

    @property
    @abstractmethod
    def tools(self) -> Toolbox:
        """The node's tools. `await ctx.tools.execute(name=..., tool_input=...)` is journaled like `tool`."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Values that persist across runs, shared by all runs of the store. Every access is journaled."""

    @abstractmethod
    async def tool(self, name: str, args: Mapping[str, object] | None = None, /, **more: object) -> ToolResult:
        """Call a tool. The arguments are validated, and the call is journaled before it is made and when it ends.

        A failing tool returns a result with an `error` and an `exit_code`. With `check=True` it raises `ToolFailed`
        instead: `await ctx.tool("search", query="tea", check=True)`.

        Args:
            name: the tool's name.
            args: its arguments as a mapping, for names that cannot be keywords, and for arguments from a model.
            more: its arguments as keywords, and `check`. Without `args`, the keyword `check` is an argument of the tool
                if the tool has an argument with this name. With `args` it never is:
                `ctx.tool("lint", {"check": "all"}, check=True)`.

        Returns:
            The tool's result; on replay the journaled one.

        Raises:
            AgentError: there is no such tool, or the arguments do not fit.
            ToolFailed: the call failed, and `check` is true; the error has the result.
            TypeError: an argument is given twice.
            ReplayMismatch: the code changed and would leave a settled irreversible effect behind.
        """

    @abstractmethod
    async def effect(
        self,
        name: str,
        fn: Callable[..., Awaitable[T] | T],
        /,
        *args: object,
        returns: type[T],
        effect: EffectClass = "idempotent",
        reconcile: Callable[[str], Awaitable[T | None] | T | None] | None = None,
    ) -> T:
        """Call `fn(*args)` once and journal its result; a replay returns the journaled result.

        Args:
            name: the effect's name in the journal.
            fn: a sync function (it runs in a thread) or an async one. A parameter named `idempotency_key` receives the
                effect's key, which stays the same when the effect is repeated after a crash.
            args: plain JSON, or pydantic models; they are part of the effect's identity.
            returns: the type of the result, which must have a JSON form.
            effect: `pure`, `read` and `idempotent` effects are repeated when a crash left their outcome unknown; for an
                `irreversible` effect the run asks for the outcome.
            reconcile: receives the key and determines whether the effect happened: it returns the result, or None if
                the effect did not happen. If it raises, a person is asked.

        Returns:
            The result of `fn`, or the journaled result, as a value of the type `returns`.

        Raises:
            EffectFailed: according to the journal, the effect failed.
            InvalidValue: the result of `fn` does not fit `returns`, or cannot be stored. The effect has happened: an
                irreversible one is not repeated unless a person agrees.
            SecretInState: the result contains a secret. The effect has happened.
            ReplayMismatch: the code changed and would leave a settled irreversible effect behind.
        """

    @abstractmethod
    async def emit(self, name: str, data: object = None) -> None:
        """Send a live event to the watchers of the run. It is not journaled, and absent on replay.

        Args:
            name: the event's name.
            data: its data, as plain JSON.
        """

    @abstractmethod
    async def progress(
        self, text: str = "", *, done: float | None = None, total: float | None = None, key: str = ""
    ) -> None:
        """Report the progress of a call to the watchers of the run, as a live event `progress`.

        It costs nothing while the run is not watched. A text of more than 20,000 characters is shortened. A sync tool
        calls `anyio.from_thread.run(ctx.progress, text)`, or yields its output.

        Args:
            text: a piece of the call's output, or its current activity.
            done: the amount done, in any unit.
            total: the total amount, in the same unit.
            key: the call's idempotency key. Default: that of the call which the current task is making. Tasks that
                serve several calls have to give it.
        """

    @overload
    async def ask(
        self,
        kind: Literal["approval"],
        /,
        *,
        prompt: str = ...,
        payload: Mapping[str, object] | None = ...,
        choices: Sequence[str] = ...,
        schema: Mapping[str, object] | None = ...,
        deadline: float | None = ...,
        event: str = ...,
    ) -> Approve | Deny: ...
    @overload
    async def ask(
        self,
        kind: QuestionKind,
        /,
        *,
        prompt: str = ...,
        payload: Mapping[str, object] | None = ...,
        choices: Sequence[str] = ...,
        schema: Mapping[str, object] | None = ...,
        deadline: float | None = ...,
        event: str = ...,
    ) -> Approve | Deny | Value: ...
    @abstractmethod
    async def ask(
        self,
        kind: QuestionKind,
        /,
        *,
        prompt: str = "",
        payload: Mapping[str, object] | None = None,
        choices: Sequence[str] = (),
        schema: Mapping[str, object] | None = None,
        deadline: float | None = None,
        event: str = "",
    ) -> Answer:
        """Ask a person and return the answer.

        Until the answer arrives the step is suspended, and the run pauses when no other step can run. Then the node
        runs again from its start, and this call returns the answer. So ask before any work.

        Clean-up (`finally`, `async with`) runs at each suspension, but cannot make calls through this context: a
        suspended step makes no further calls, whatever its node catches. In the node's own task, questions are
        identified by their order. Questions of tasks that it starts are identified by their content, so these tasks
        must repeat them word for word.

        Args:
            kind: `approval` (payload `{tool, args, risk, effect, call_id, shown}`; answered by Approve or Deny), or
                `input` (answered by a Value).
            prompt: the text of the question.
            payload: further data to show with the question, as plain JSON.
            choices: the allowed values of the answer; empty for any value.
            schema: JSON Schema of the value.
            deadline: seconds from now after which the answer is `Deny(reason="deadline passed")`.
            event: the name of an event that also answers the question, with its data as a `Value`: an event from
                `Executor.send`, sent now or earlier, that nothing before this step took.

        Returns:
            `Approve` or `Deny` for an approval, `Value` for an input. Either can be `Deny` after the deadline.
        """

    @abstractmethod
    async def sleep(self, seconds: float | None = None, *, until: float | None = None) -> None:
        """Wait for a time. The run waits, not the process: the step is suspended as in `ask`.

        Args:
            seconds: how long to wait from now.
            until: the end of the wait, Unix seconds. Give either `seconds` or `until`.
        """

    @abstractmethod
    async def receive(
        self, event: str, *, match: Mapping[str, object] | None = None, deadline: float | None = None
    ) -> object:
        """Wait for an event from outside and return its data; the step is suspended as in `ask`.

        It returns the oldest event with this name that matches and that nothing before this step took, whether it was
        sent before or is sent later.

        Args:
            event: the event's name.
            match: keys of the event's data, and the values that they must have, as plain JSON.
            deadline: seconds from now to wait; None for no limit.

        Returns:
            The event's data, plain JSON.

        Raises:
            StepTimeout: no such event arrived within `deadline` seconds.
        """
