"""What the node of one attempt is handed."""

from __future__ import annotations

import copy
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from orchestrator.context import Context
from orchestrator.errors import InvalidValue
from orchestrator.executor.effects.ledger import Ledger, innermost
from orchestrator.executor.effects.questions import answer_to, make_question, passed_on
from orchestrator.executor.failures import failure_of
from orchestrator.executor.interrupts import Lost, Signal, TimedOut, at_home
from orchestrator.graph.codec import as_json, shown
from orchestrator.jsontypes import cleaned, digest, storable
from orchestrator.kernel.queries import limits_left
from orchestrator.kernel.records import EffectClass, Failure
from orchestrator.redacting import without_known_in
from orchestrator.tools.capping import cut
from orchestrator.values import check_text, checked, fault_in

if TYPE_CHECKING:
    from orchestrator.executor.concurrency import Place
    from orchestrator.executor.run_log import RunLog
    from orchestrator.graph.limits import LimitsLeft
    from orchestrator.graph.node import Node
    from orchestrator.kernel.question import Answer, Question, QuestionKind
    from orchestrator.kernel.state import Activation
    from orchestrator.models.base import Model
    from orchestrator.tools.pool_client import PoolClient
    from orchestrator.tools.result import ToolResult
    from orchestrator.tools.toolbox import Toolbox

T = TypeVar("T")

_MOST_TOLD = 20_000
"""Characters that one live event about a call tells."""
_SHARED = (str, int, float, bool, type(None), bytes)


class StepContext(Context[Any]):
    """The context of one attempt. Cheap to make: what a node does not use is never built."""

    scope: anyio.CancelScope | None = None
    """The attempt's time limit."""
    place: Place | None = None
    """Its place, where only so many steps run at a time."""
    signal: Signal | None = None
    """Why the attempt does not end with an outcome, whatever its node makes of what was raised."""
    failed_calls: int = 0
    """Calls of tools that the node made, and that failed or could not be made."""
    _ledger: Ledger | None = None
    _tools: Toolbox | None = None
    _asked: dict[str, int] | None = None

    def __init__(self, live: RunLog, activation: Activation, spec: Node) -> None:
        self.live, self.activation, self.spec = live, activation, spec

    @property
    def run_id(self) -> str:
        return self.live.run_id

    @property
    def node(self) -> str:
        return self.activation.node

    @property
    def path(self) -> str:
        return self.activation.path

    @property
    def attempt(self) -> int:
        return self.activation.attempt

    @property
    def item(self) -> object:
        return _own(self.activation.item)

    @property
    def items(self) -> Sequence[object]:
        return tuple(_own(item) for item in self.activation.items)

    @property
    def error(self) -> Failure | None:
        return self.activation.error

    @property
    def limits(self) -> LimitsLeft:
        own = limits_left(self.live.machine, self.activation)
        return own if self.live.callers is None else self.live.callers.left(own)

    @property
    def deps(self) -> Any:
        return self.live.resources.deps

    @property
    def holder(self) -> PoolClient:
        """The run, as who holds instances of the pools of tools."""
        return self.live.holdings.of(self.live.run_id)

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Wait in here for what other steps do: they may need this one's place among those that run at a time."""
        return nullcontext() if self.place is None else self.place.aside()

    @property
    def ledger(self) -> Ledger:
        """The effects of this attempt."""
        if self._ledger is None:
            self._ledger = Ledger(self)
        return self._ledger

    @property
    def model(self) -> Model:
        from orchestrator.executor.effects.model_calls import model_for

        return model_for(self)

    @property
    def models(self) -> Mapping[str, Model]:
        from orchestrator.executor.effects.model_calls import models_for

        return models_for(self)

    @property
    def tools(self) -> Toolbox:
        if self._tools is None:
            from orchestrator.executor.effects.tool_calls import tools_for

            self._tools = tools_for(self)
        return self._tools

    async def tool(self, name: str, args: Mapping[str, object] | None = None, /, **more: object) -> ToolResult:
        from orchestrator.executor.effects.tool_calls import call_tool

        return await call_tool(self, name, args, more)

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
        from orchestrator.executor.effects.tool_calls import call_function

        return await call_function(self, name, fn, args, returns, effect, reconcile)

    async def emit(self, name: str, data: object = None) -> None:
        if self.live.watchers:
            where = f"the data of event {shown(name)}"
            try:
                data = to_jsonable_python(cleaned(data), fallback=shown, serialize_unknown=True)
            except (ValueError, RecursionError) as error:
                raise InvalidValue(f"{where}: {fault_in(data) or error}", where=where) from None
            checked(data, where)
            self.tell("emitted", name=storable(name), data=data)

    async def progress(
        self, text: str = "", *, done: float | None = None, total: float | None = None, key: str = ""
    ) -> None:
        if self.live.watchers:
            told: dict[str, object] = {"done": done, "total": total}
            key = key or innermost()
            entry = self.live.machine.ledger.entry(key) if key else None
            if entry is not None:
                told |= {"key": key, "tool": entry.intended.name}
            if text:
                told["text"] = storable(cut(text, _MOST_TOLD))
            self.tell("progress", **{name: value for name, value in told.items() if value is not None})

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
    ) -> Any:
        await self.may_go_on()
        shown_with: dict[str, object] = as_json(dict(payload or {}), "the payload of a question", inside=1)
        prompt = check_text(prompt, "the prompt of a question")
        if not all(isinstance(choice, str) for choice in choices):
            raise TypeError(f"{self.node} asks with choices {shown(choices)}: choices are texts")
        choices = [check_text(choice, "a choice of a question") for choice in choices]
        schema = None if schema is None else as_json(dict(schema), "the schema of an answer")
        if deadline is not None and not math.isfinite(deadline):
            raise InvalidValue(f"the deadline of a question is {deadline} seconds: leave it out for none")
        tool = self.tools.get(str(shown_with["tool"])) if "tool" in shown_with else None
        # In the node's own task the order of questions says which is which, whatever the prompts are by now. Tasks
        # that it starts run in any order, so that only what is asked tells their questions apart.
        beside = () if at_home() else (digest([kind, prompt, shown_with, choices, schema]),)
        question = make_question(
            self, self._occurrence(*beside), kind, beside=beside, prompt=prompt, payload=shown_with, choices=choices,
            schema=schema, deadline=deadline, tool=tool,
        )  # fmt: skip
        if self._ledger is not None and question.id not in self.activation.answers:
            await self._ledger.settle_down()
        answer: Answer = answer_to(self, question)
        return answer

    async def pass_on(self, question: Question, faults: Sequence[str] = ()) -> Answer:
        """The answer to a question of a run that this step began. It is asked here, with all that it says.

        Args:
            faults: why the answers that it had before did not fit.
        """
        await self.may_go_on()
        own = passed_on(self, question, faults)
        if self._ledger is not None and own.id not in self.activation.answers:
            await self._ledger.settle_down()
        return answer_to(self, own)

    def _occurrence(self, beside: str = "") -> int:
        if self._asked is None:
            self._asked = {}
        occurrence = self._asked.get(beside, 0)
        self._asked[beside] = occurrence + 1
        return occurrence

    def signalled(self, signal: Signal) -> Signal:
        """Note why the attempt ends without an outcome, and give what is to be raised out of its node for that."""
        if self.signal is None:
            self.signal = TimedOut() if self.timed_out else signal
        return self.signal

    @property
    def timed_out(self) -> bool:
        """Whether the attempt's time has run out, also where the node has not noticed, or does not care."""
        scope = self.scope
        return scope is not None and (scope.cancel_called or anyio.current_time() >= scope.deadline)

    def go_on(self) -> None:
        """Refuse a node that caught a signal, or whose time has run out, whatever it wants outside.

        Raises:
            Suspend, Refused, Lost, TimedOut: the signal.
        """
        if self.signal is not None or self.timed_out:
            raise self.signal or self.signalled(TimedOut())

    async def may_go_on(self) -> None:
        """As `go_on`. A node that catches what this raises, and tries again for ever, holds up nothing but itself."""
        if self.signal is not None or self.timed_out:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            self.go_on()

    async def ensure_held(self) -> None:
        """Ask the store whether the run is still ours, before something outside is done.

        Raises:
            Lost: it is not, or the store cannot say.
        """
        try:
            await self.live.ensure_held()
        except Exception as error:
            raise self.signalled(Lost(error)) from error

    # The step itself is a fence, too: its node waits for a thread, or a place among those that run at a time.
    key: str = ""
    entered: bool | None = None

    @property
    def held(self) -> bool:
        """See `Fence.held`."""
        return self.live.held

    def stop_reading(self, *, goes_on: bool) -> None:
        """See `Ledger.stop_reading`."""
        if self._ledger is not None:
            self._ledger.stop_reading(goes_on=goes_on)

    def reopen(self, errors: Sequence[BaseException]) -> bool:
        """See `Ledger.reopen`."""
        return self._ledger is not None and self._ledger.reopen(errors)

    async def close_readers(self) -> None:
        """See `Ledger.close_readers`."""
        if self._ledger is not None:
            await self._ledger.close_readers()

    def tell(self, kind: str, **data: object) -> None:
        """Send a live event about this step, without known secrets, to all watchers."""
        if self.live.watchers:
            clean = {name: without_known_in(value) for name, value in data.items()}
            self.live.tell(kind, {"activation": self.activation.key, "path": self.path, "node": self.node, **clean})

    def failure(self, error: BaseException) -> Failure:
        """An error, as data."""
        return failure_of(error, self.activation)

    def failure_named(self, kind: str, message: str) -> Failure:
        """A failure that no exception stands for."""
        return Failure(type=kind, message=message, node=self.node, path=self.path)

    def stopped(self) -> tuple[str, str] | None:
        """Why the run itself stopped this attempt; None if all that stops is this process."""
        if self.activation.key not in self.live.machine.running:
            return "Cancelled", "cancelled while it was under way"
        if self.timed_out:
            return "StepTimeout", f"{self.node} took longer than {self.spec.timeout} s"
        return None


def _own(value: object) -> object:
    """A copy of a value of the state, so that changing it changes nothing else."""
    if isinstance(value, _SHARED) or (isinstance(value, BaseModel) and value.model_config.get("frozen")):
        return value
    return copy.deepcopy(value)
