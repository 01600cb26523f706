"""What a node is handed beside the state: models, tools, effects, questions, and where it stands in the run.

Everything that a node does outside of itself goes through here, so that it is journaled, paid from the run's
limits, and not done twice after a crash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, overload

from orchestrator.typevars import DepsT

if TYPE_CHECKING:
    from orchestrator.graph.limits import LimitsLeft
    from orchestrator.kernel.question import Answer, Approve, Deny, QuestionKind, Value
    from orchestrator.kernel.records import EffectClass, Failure
    from orchestrator.models.base import Model
    from orchestrator.tools.result import ToolResult
    from orchestrator.tools.toolbox import Toolbox

T = TypeVar("T")

__all__ = ["Context"]


class Context(ABC, Generic[DepsT]):
    """One attempt of one step of one run. Annotate `ctx: Context[MyDeps]` to have `ctx.deps` typed."""

    __slots__ = ()

    # -- where it stands ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The run's id."""

    @property
    @abstractmethod
    def node(self) -> str:
        """The node's name in its graph."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The branch that the step runs in, such as `plan.2`; empty outside of forks and subgraphs."""

    @property
    @abstractmethod
    def attempt(self) -> int:
        """1, and one more for each retry."""

    @property
    @abstractmethod
    def item(self) -> object:
        """The item of the innermost open map; None outside of maps. A copy: changing it changes nothing else."""

    @property
    @abstractmethod
    def items(self) -> Sequence[object]:
        """The items of all open maps, the innermost last."""

    @property
    @abstractmethod
    def error(self) -> Failure | None:
        """What failed, if an edge for `error`, `timeout` or `exhausted` led here."""

    @property
    @abstractmethod
    def limits(self) -> LimitsLeft:
        """What is left of the run's limits now."""

    # -- what it may use ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def deps(self) -> DepsT:
        """What the executor was given as `deps`: clients, connections, secrets. Never journaled."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """The node's model. Its calls are journaled, and a reply that arrived is never paid for again.

        Raises:
            GraphUnknown: the executor was given no such model.
        """

    @property
    @abstractmethod
    def models(self) -> Mapping[str, Model]:
        """All of the executor's named models."""

    @property
    @abstractmethod
    def tools(self) -> Toolbox:
        """The node's tools. `await ctx.tools.execute(name=..., tool_input=...)` is journaled as `tool` is."""

    @abstractmethod
    async def tool(self, name: str, args: Mapping[str, object] | None = None, /, **more: object) -> ToolResult:
        """Call a tool: arguments validated, the call journaled before and its result after.

        A tool that fails gives a result like any other, with an `error` and an `exit_code`; with `check=True` a failed
        result is raised instead: `await ctx.tool("search", query="tea", check=True)`.

        Args:
            name: the tool's name.
            args: its arguments as a mapping, for names that cannot be keywords, and for those that come from a model.
            more: its arguments as keywords, and `check`. Without `args` the keyword `check` is an argument of the tool
                if the tool has one of that name; beside `args` it never is:
                `ctx.tool("lint", {"check": "all"}, check=True)`.

        Raises:
            AgentError: there is no such tool, or the arguments do not fit.
            ToolFailed: the call failed, and `check` is true; it holds the result.
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
        """Touch the outside: `fn(*args)` runs once, its result is journaled, a replay gives it back.

        Args:
            name: what the journal calls it.
            fn: sync (then it runs in a thread) or async. A parameter named `idempotency_key` is given the
                effect's key: the same one whenever this effect is made again after a crash.
            args: plain JSON, or pydantic models; they are part of what identifies the effect.
            returns: the type of the result, which must have a JSON form.
            effect: `pure`, `read` and `idempotent` run again when a crash left their end unknown; after an
                `irreversible` one the run asks what became of it.
            reconcile: told the key, finds out whether it happened: its result, or None if it did not. If it raises,
                a person is asked.

        Raises:
            EffectFailed: the journal holds that it ended in an error.
            ReplayMismatch: the code changed and would leave a settled irreversible effect behind.
        """

    @abstractmethod
    async def emit(self, name: str, data: object = None) -> None:
        """Send a live event to whoever watches the run. It is not journaled, and absent on replay."""

    @abstractmethod
    async def progress(
        self, text: str = "", *, done: float | None = None, total: float | None = None, key: str = ""
    ) -> None:
        """Tell whoever watches the run how far a call is: a live event `progress`, with the call's key and tool.

        Costs nothing when nobody watches. A text of more than 20,000 characters is cut. A sync tool calls it by
        `anyio.from_thread.run(ctx.progress, text)`, or yields its output.

        Args:
            text: a piece of the call's output, or what it is doing.
            done: how much is done, in any unit.
            total: how much there is to do, in the same unit.
            key: the call's idempotency key; if not given, that of the call which this task works on. Tasks that
                serve several calls say it.
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
    ) -> Answer:
        """Ask a person, and return the answer when it is there.

        Until then the step is suspended, and the run pauses when nothing else in it can run. When the answer
        has come the node runs again from its start and this call returns it: so ask before any work.

        Clean-up (`finally`, `async with`) runs at each suspension, but touches nothing through this context then: a
        suspended step makes no further calls, whatever its node catches. In the node's own task the order of
        questions says which is which; questions of tasks that it starts are told apart by all that they ask, so those
        must ask the same words again.

        Args:
            kind: `approval` (payload `{tool, args, risk, effect, call_id}`; answered by Approve or Deny), or
                `input` (answered by a Value).
            choices: the only values that an answer may have.
            schema: JSON Schema of the value.
            deadline: seconds from now after which the answer is `Deny(reason="deadline passed")`.
        """
