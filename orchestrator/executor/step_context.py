"""The context object that a node receives in one attempt."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import to_jsonable_python

from orchestrator.context import Context
from orchestrator.errors import InvalidValue, StepTimeout
from orchestrator.executor.calls.effect import Attempt
from orchestrator.executor.calls.limits import remaining_limits
from orchestrator.executor.calls.perform import AttemptEffects
from orchestrator.executor.calls.questions import answer_to, as_before, make_question
from orchestrator.executor.calls.under_way import innermost
from orchestrator.executor.failures import Suspend, in_step_task
from orchestrator.graph.codec import as_json, shown
from orchestrator.graph.isolation import isolated
from orchestrator.graph.limits import LimitsLeft
from orchestrator.json import cleaned, digest, storable
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.question import Answer, Question, QuestionKind
from orchestrator.kernel.question import until as until_text
from orchestrator.kernel.records import Asked, EffectClass, EffectSettled, Failure
from orchestrator.kernel.state import Activation
from orchestrator.memory import Memory
from orchestrator.models.base import Model
from orchestrator.tasks import away
from orchestrator.tools.pool_client import PoolClient
from orchestrator.tools.result import ToolResult, cut
from orchestrator.tools.toolbox import Toolbox
from orchestrator.values import LATEST, check_name, check_text, checked, fault_in

if TYPE_CHECKING:
    from orchestrator.executor.calls.tools import JournaledToolbox

T = TypeVar("T")

_MOST_SHOWN = 20_000
"""Maximum number of characters of a text in one live event."""


class StepContext(Context):
    """The context of one attempt. Parts that a node does not use are never built."""

    _effects: AttemptEffects | None = None
    _tools: JournaledToolbox | None = None
    _asked: dict[str, int] | None = None

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    # -- position in the run -------------------------------------------------------------------------------------

    @property
    def activation(self) -> Activation:
        """Return the activation that the step runs."""
        return self._attempt.activation

    @property
    def run_id(self) -> str:
        self._attempt.varies = "ctx.run_id"
        return self._attempt.log.run_id

    @property
    def labels(self) -> Mapping[str, str]:
        self._attempt.varies = "ctx.labels"
        return dict(self._attempt.log.machine.labels)

    @property
    def node(self) -> str:
        return self._attempt.activation.node

    @property
    def path(self) -> str:
        return self._attempt.activation.path

    @property
    def attempt(self) -> int:
        return self._attempt.activation.attempt

    @property
    def item(self) -> object:
        return isolated(self._attempt.activation.item)

    @property
    def items(self) -> Sequence[object]:
        return tuple(isolated(item) for item in self._attempt.activation.items)

    @property
    def error(self) -> Failure | None:
        return self._attempt.activation.error

    @property
    def limits(self) -> LimitsLeft:
        return remaining_limits(self._attempt)

    # -- resources -----------------------------------------------------------------------------------------------

    @property
    def deps(self) -> Any:
        return self._attempt.resources.deps

    @property
    def context(self) -> Any:
        self._attempt.varies = "ctx.context"
        return self._attempt.log.context

    @property
    def holder(self) -> PoolClient:
        """Return the run as a client of the pools of its tools."""
        log = self._attempt.log
        return log.holdings.of(log.run_id)

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """See `Attempt.while_waiting`. Tools that wait for an instance of a pool use it."""
        return self._attempt.while_waiting()

    @property
    def effects(self) -> AttemptEffects:
        """Return the effects of this attempt."""
        if self._effects is None:
            self._effects = AttemptEffects(self._attempt)
        return self._effects

    @property
    def model(self) -> Model:
        from orchestrator.executor.calls.models import model_for

        return model_for(self.effects)

    @property
    def models(self) -> Mapping[str, Model]:
        from orchestrator.executor.calls.models import models_for

        return models_for(self.effects)

    @property
    def tools(self) -> Toolbox:
        return self._toolbox

    @property
    def _toolbox(self) -> JournaledToolbox:
        if self._tools is None:
            from orchestrator.executor.calls.tools import tools_for

            self._tools = tools_for(self.effects, self)
        return self._tools

    @property
    def memory(self) -> Memory:
        from orchestrator.executor.calls.memory import JournaledMemory

        self._attempt.varies = "ctx.memory"
        return JournaledMemory(self.effects)

    async def tool(self, name: str, args: Mapping[str, object] | None = None, /, **more: object) -> ToolResult:
        return await self._toolbox.call(name, args, more)

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
        from orchestrator.executor.calls.tools import call_function

        return await call_function(self.effects, name, fn, args, returns, effect, reconcile)

    async def emit(self, name: str, data: object = None) -> None:
        if self._attempt.log.watchers:
            where = f"the data of event {shown(name)}"
            try:
                data = to_jsonable_python(cleaned(data), fallback=shown, serialize_unknown=True)
            except (ValueError, RecursionError) as error:
                raise InvalidValue(f"{where}: {fault_in(data) or error}", where=where) from None
            checked(data, where)
            self._attempt.tell("emitted", name=storable(name), data=data)

    async def progress(
        self, text: str = "", *, done: float | None = None, total: float | None = None, key: str = ""
    ) -> None:
        if self._attempt.log.watchers:
            fields: dict[str, object] = {"done": done, "total": total}
            key = key or innermost()
            entry = self._attempt.log.machine.ledger.entry(key) if key else None
            if entry is not None:
                fields |= {"key": key, "tool": entry.intended.name}
            if text:
                fields["text"] = storable(cut(text, _MOST_SHOWN))
            self._attempt.tell("progress", **{name: value for name, value in fields.items() if value is not None})

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
    ) -> Any:
        await self._attempt.wait_if_stopped()
        shown_with: dict[str, object] = as_json(dict(payload or {}), "the payload of a question", inside=1)
        prompt = check_text(prompt, "the prompt of a question")
        if not all(isinstance(choice, str) for choice in choices):
            raise TypeError(f"{self.node} asks with choices {shown(choices)}: choices must be strings")
        choices = [check_text(choice, "a choice of a question") for choice in choices]
        schema = None if schema is None else as_json(dict(schema), "the schema of an answer")
        at = self._due(deadline, "the deadline of a question")
        tool = self.tools.get(str(shown_with["tool"])) if "tool" in shown_with else None
        # In the node's own task, questions are identified by their order, whatever their prompts. Tasks that it starts
        # run in any order, so that only the content identifies their questions.
        unordered = () if in_step_task() else (digest([kind, prompt, shown_with, choices, schema]),)
        made = partial(
            make_question,
            self._attempt,
            self._occurrence(*unordered),
            kind,
            unordered=unordered,
            prompt=prompt,
            payload=shown_with,
            choices=choices,
            schema=schema,
            deadline=at,
            tool=tool,
            event=check_name(event) if event else "",
        )
        question = await away(made, shown_with, schema)
        return await self._answer(question)

    async def ask_inside(
        self,
        key: str,
        name: str,
        *,
        prompt: str,
        payload: Mapping[str, object],
        schema: Mapping[str, object],
        secret: str,
        begun: bool,
    ) -> Answer:
        """Ask for a value inside a call, which is suspended, and starts again with the answer.

        Args:
            key: idempotency key of the call.
            name: identifies the question among those with the same secret.
            prompt: the text of the question.
            payload: further data to show with the question, as plain JSON.
            schema: JSON Schema of the value.
            secret: what the call needs when it starts again, see `suspended_with`. It is never shown.
            begun: whether the call has begun something elsewhere; False: it counts as not made.

        Raises:
            Suspend: there is no answer yet.
        """
        await self._attempt.wait_if_stopped()
        question = make_question(
            self._attempt,
            0,
            "input",
            unordered=(digest([key, name, secret]),),
            prompt=check_text(prompt, "the prompt of a question"),
            payload=as_json(dict(payload), "the payload of a question", inside=1),
            choices=(),
            schema=as_json(dict(schema), "the schema of an answer"),
            deadline=None,
            tool=None,
        )
        return await self._answer_inside(question, key, secret, begun=begun)

    async def sleep_inside(self, key: str, seconds: float, *, secret: str) -> None:
        """Sleep in a call that has begun something elsewhere: it is suspended, and starts again when the time is over.

        Args:
            key: idempotency key of the call.
            seconds: how long.
            secret: what the call needs when it starts again, see `suspended_with`; another one for each sleep.

        Raises:
            Suspend: the time is not over.
        """
        await self._attempt.wait_if_stopped()
        at = self._due(seconds, "a time to sleep")
        assert at is not None
        question = self._waiting("timer", (digest([key, "timer", secret]),), prompt=until_text(at), deadline=at)
        await self._answer_inside(as_before(self.activation, question), key, secret, begun=True)

    async def _answer_inside(self, question: Question, key: str, secret: str, *, begun: bool) -> Answer:
        try:
            return await self._answer(question)
        except Suspend as signal:
            if signal.question.id == question.id:
                signal.key, signal.begun, signal.secret = key, begun, check_text(secret, "the state of a call")
            raise

    async def suspended_with(self, key: str) -> str:
        """Return the secret with which a call was suspended last; empty if it begins.

        Args:
            key: idempotency key of the call.
        """
        log = self._attempt.log
        entry = log.machine.ledger.entry(key)
        if entry is None or entry.settled is None or not entry.intended.again:
            return ""
        if entry.settled.secret or entry.settled.may_have_happened:
            return entry.settled.secret
        found = ""  # in journals of earlier versions, the question has it
        for record in await log.journal.store.read(log.run_id):
            if isinstance(record, Asked) and record.secret.startswith(f"{key}\n"):
                found = record.secret.partition("\n")[2]
            elif isinstance(record, EffectSettled) and record.key == key and record.may_have_happened:
                found = ""
        return found

    @property
    def calls_before(self) -> Sequence[tuple[str, object]]:
        """Tool calls of this attempt that were journaled before the step was suspended or stopped: names and arguments,
        in the order in which they were made. Those of `calls_reused` do not count.
        """
        return [(one.intended.name, one.intended.request.get("args")) for one in self._calls(made_here=True)]

    @property
    def calls_reused(self) -> Sequence[tuple[str, object]]:
        """Tool calls with a result that the run was forked with, or that a failed attempt made: names and arguments."""
        made = self._calls(made_here=False)
        return [(one.intended.name, one.intended.request.get("args")) for one in made if not one.is_open]

    def _calls(self, *, made_here: bool) -> list[EffectEntry]:
        """Return the tool calls of the step that its attempt made in this run, or the other ones, in their order."""
        attempt, forked_at = self.activation.attempt, self._attempt.log.machine.forked_at
        made = sorted(self.effects.under_way.before, key=lambda one: one.intended.seq)
        calls = [one for one in made if one.intended.kind == "tool" and not one.intended.inside]
        return [one for one in calls if (one.intended.attempt == attempt and one.intended.seq > forked_at) is made_here]

    @property
    def is_stopped(self) -> bool:
        """True if the run has stopped this step; False if it runs, or only this process stops."""
        return self._attempt.stopped() is not None

    async def sleep(self, seconds: float | None = None, *, until: float | None = None) -> None:
        await self._attempt.wait_if_stopped()
        if (seconds is None) == (until is None):
            raise TypeError(f"{self.node} sleeps: give either seconds or until")
        at = self._due(seconds, "a time to sleep") if until is None else _moment(until)
        assert at is not None
        # In concurrent tasks, sleeps are identified by the requested duration: the time differs each time.
        unordered = () if in_step_task() else (digest(["timer", seconds, until]),)
        question = self._waiting("timer", unordered, prompt=until_text(at), deadline=at)
        await self._answer(question if until is not None else as_before(self.activation, question))

    async def receive(
        self, event: str, *, match: Mapping[str, object] | None = None, deadline: float | None = None
    ) -> object:
        await self._attempt.wait_if_stopped()
        name = check_name(event)
        wanted: dict[str, object] = as_json(dict(match or {}), "what an event must match", inside=1)
        at = self._due(deadline, "the deadline of an event")
        prompt = f"event {shown(name)}"
        if wanted:
            prompt += f" with {', '.join(f'{key} = {shown(value)}' for key, value in wanted.items())}"
        unordered = () if in_step_task() else (digest(["event", prompt]),)
        question = self._waiting("event", unordered, prompt=prompt, deadline=at, event=name, match=wanted)
        answer = await self._answer(question)
        if answer.type != "value":
            raise StepTimeout(f"{self.node}: no {prompt} came{'' if deadline is None else f' within {deadline:g} s'}")
        return isolated(answer.value)

    def _waiting(self, kind: QuestionKind, unordered: tuple[str, ...], **fields: Any) -> Question:
        """Return a question that no person answers."""
        return make_question(
            self._attempt,
            self._occurrence(*unordered),
            kind,
            unordered=unordered,
            payload={},
            choices=(),
            schema=None,
            tool=None,
            **fields,
        )

    def _due(self, seconds: float | None, what: str) -> float | None:
        """Return the Unix time `seconds` from now; None if `seconds` is None."""
        if seconds is None:
            return None
        if not math.isfinite(seconds):
            raise InvalidValue(f"{what} is {seconds} seconds: omit it for none")
        return min(self._attempt.log.clock.now() + seconds, LATEST)

    async def _answer(self, question: Question) -> Answer:
        if self._effects is not None and question.id not in self.activation.answers:
            await self._effects.under_way.settle_down()
        return answer_to(self._attempt, question)

    def _occurrence(self, unordered: str = "") -> int:
        if self._asked is None:
            self._asked = {}
        occurrence = self._asked.get(unordered, 0)
        self._asked[unordered] = occurrence + 1
        return occurrence

    # -- the end of the attempt ----------------------------------------------------------------------------------

    def stop_reading(self, *, will_resume: bool) -> None:
        """See `UnderWay.stop_reading`."""
        if self._effects is not None:
            self._effects.under_way.stop_reading(will_resume=will_resume)

    def reopen(self, errors: Sequence[BaseException]) -> bool:
        """See `AttemptEffects.reopen`."""
        return self._effects is not None and self._effects.reopen(errors)

    async def close_readers(self) -> None:
        """See `UnderWay.close_readers`."""
        if self._effects is not None:
            await self._effects.under_way.close_readers()


def _moment(at: float) -> float:
    if not -LATEST <= at <= LATEST:  # true also for NaN
        raise InvalidValue(f"a time to sleep until is {at}: give Unix seconds")
    return at
