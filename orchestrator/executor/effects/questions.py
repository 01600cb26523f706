"""Questions of a step: their ids and digests, the answers to them, and what is asked of an unknown outcome.

why           what is known
interrupted   the process, or what in the node waited for the call, was stopped while it was under way
timeout       time ran out before the other side said anything
connection    the connection to the other side broke
cancelled     the run stopped it: a cancel, a lost race, a limit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.executor.answers import about
from orchestrator.executor.interrupts import Suspend
from orchestrator.jsontypes import digest
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.question import Answer, Approve, Question, QuestionKind
from orchestrator.tools.result import ToolFailure

if TYPE_CHECKING:
    from orchestrator.executor.call_guard import CallGuard
    from orchestrator.executor.effects.effect import Effect
    from orchestrator.executor.step.context import StepContext
    from orchestrator.kernel.ledger import EffectEntry
    from orchestrator.tools.tool import Tool

CHOICES = ("retry", "happened", "failed")
"""What can be answered when nobody knows whether an effect happened."""

_WORDS = {
    "interrupted": "it was under way when the run was stopped",
    "timeout": "time ran out while it was under way",
    "connection": "the connection broke while it was under way",
    "cancelled": "it was cancelled while it was under way",
}


def make_question(
    context: StepContext,
    occurrence: int,
    kind: QuestionKind,
    *,
    beside: Sequence[str] = (),
    prompt: str,
    payload: Mapping[str, object],
    choices: Sequence[str],
    schema: Mapping[str, object] | None,
    deadline: float | None,
    tool: Tool | None,
) -> Question:
    """A question of a step. Its id follows from the step and from what is asked, so that a replay asks the same.

    Args:
        occurrence: the how-manieth question it is, of the node's own task or of all those with the same `beside`.
        beside: digest of all that is asked, where the order of questions says nothing: of tasks beside each other.
    """
    subject = [payload.get("tool"), tool.schema_digest if tool is not None else "", payload.get("args")]
    about = digest(subject) if kind == "approval" else ""
    name = hash_id(context.activation.key, str(occurrence), about, *beside, *_again(context))
    return Question(
        id=name,
        kind=kind,
        node=context.node,
        path=context.path,
        prompt=prompt,
        payload=dict(payload),
        choices=tuple(choices),
        schema=None if schema is None else dict(schema),
        digest=digest([context.run_id, context.path, context.node, *subject, name]),
        deadline=None if deadline is None else context.live.clock.now() + deadline,
    )


def passed_on(context: StepContext, question: Question, faults: Sequence[str]) -> Question:
    """A question of another run, as one of the step that began that run.

    Args:
        faults: why the answers that it had before did not fit.
    """
    name = hash_id(
        context.activation.key, "passed on", question.id, *([str(len(faults))] if faults else []), *_again(context)
    )
    return question.model_copy(
        update={
            "id": name,
            "node": context.node,
            "path": context.path,
            "prompt": f"{question.prompt} ({faults[-1]})" if faults else question.prompt,
            "digest": digest([context.run_id, context.path, context.node, question.digest, name]),
        }
    )


def _again(context: StepContext) -> tuple[str, ...]:
    """Part of the id of what a step asks whose answers were withdrawn: an old answer cannot fit it."""
    withdrawn = context.activation.withdrawn
    return ("again", str(withdrawn)) if withdrawn else ()


def answer_to(context: StepContext, question: Question) -> Answer:
    """The answer to a question of this step.

    An answer to a question of the same id that showed another call, or in a run that is not believed other words, does
    not count: the journal may say of a question what the step never asked.

    Raises:
        Suspend: there is none yet.
    """
    answered = context.activation.answers.get(question.id)
    guard = context.live.guard
    if answered is None or (answered.about and answered.about != about(question)):
        raise context.signalled(Suspend(question))
    if guard is not None and not guard.showed(question):
        raise context.signalled(Suspend(question))
    return answered.answer


async def ask_first(
    context: StepContext, guard: CallGuard, tool: Tool, effect: Effect[Any]
) -> ToolFailure | dict[str, object] | None:
    """Ask about a call that is not approved.

    Returns:
        None: it may be made. Or the arguments to make it with instead, or the result of a call that was denied.

    Raises:
        Suspend: there is no answer yet.
    """
    args: Mapping[str, object] = effect.request["args"]  # type: ignore[assignment]
    due, key = context.ledger.is_due(effect)
    if not due or not guard.asks_about(tool, args, key):
        return None
    answer = await context.ask(
        "approval",
        prompt=f"Call {tool.name}? The journal says it was approved, and has no valid seal for that",
        payload={"tool": tool.name, "args": dict(args), "risk": tool.risk, "effect": tool.effect},
    )
    if not isinstance(answer, Approve):
        reason = getattr(answer, "reason", "")
        return ToolFailure(error=f"the user denied this call{f': {reason}' if reason else ''}")
    return None if answer.args is None else dict(tool.validate(answer.args))


# -- unknown outcomes -------------------------------------------------------------------------------------------------


def why_unknown(entry: EffectEntry) -> str:
    """Why the end of an effect is not known, as one word."""
    kind, _ = _error_of(entry)
    if kind in ("", "Cancelled"):
        return "cancelled" if kind else "interrupted"
    return "timeout" if "Timeout" in kind else "connection"


def _error_of(entry: EffectEntry) -> tuple[str, str]:
    """Class and words of the error that an effect ended with; empty if it did not end."""
    settled = entry.settled
    if settled is None or settled.seq < entry.intended.seq:
        return "", ""
    if settled.error is not None:
        return settled.error.type, settled.error.message
    # A tool's result that stands for an error.
    result: Mapping[str, object] = settled.result if isinstance(settled.result, Mapping) else {}
    told = result.get("metadata")
    kind = told.get("exception") if isinstance(told, Mapping) else None
    return str(kind or "Error"), str(result.get("error", ""))


def unknown_question(context: StepContext, entry: EffectEntry, again: int, doubts: Mapping[str, str]) -> Question:
    """The question what became of an effect.

    Args:
        again: how often it was asked before, and the answer did not fit.
        doubts: what went wrong when it was to be found out otherwise, or with the last answer.
    """
    intended = entry.intended
    why, (_, error) = why_unknown(entry), _error_of(entry)
    began = datetime.fromtimestamp(intended.ts, UTC).isoformat(timespec="seconds")
    prompt = (
        f"Whether {intended.name} happened is not known: {_WORDS[why]}. "
        f"Try it again (retry), go on as if it had happened (happened, with its result), or fail (failed)?"
    )
    payload: dict[str, object] = {
        "tool": intended.name,
        "args": intended.request.get("args", intended.request),
        "effect": intended.effect,
        "key": intended.key,
        "attempt": intended.attempt,
        "began": began,
        "why": why,
        **({"error": error} if error else {}),
        **doubts,
    }
    parts = [str(intended.seq)] if not again else [str(intended.seq), str(again)]
    withdrawn = context.activation.withdrawn
    name = hash_id(
        context.activation.key, "unknown", intended.key, *parts, *(("again", str(withdrawn)) if withdrawn else ())
    )
    return Question(
        id=name,
        kind="unknown_outcome",
        node=context.node,
        path=context.path,
        prompt=prompt + "".join(f" ({words})" for words in doubts.values()),
        payload=payload,
        choices=CHOICES,
        digest=digest([context.run_id, context.path, context.node, intended.key, name]),
    )
