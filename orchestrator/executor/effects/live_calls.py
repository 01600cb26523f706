"""Calls of a replay that are live, because the replayed run has no result for them.

Calls that a confirm of the graph asks about are asked about in any case, unless a person approved them in the replay
itself; irreversible ones as in every fork of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from orchestrator.executor.call_guard import asks_about
from orchestrator.executor.commands import Stop
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.effects.questions import answer_to, asking_again, identified
from orchestrator.executor.effects.under_way import UnderWay, inside
from orchestrator.executor.interrupts import Refused
from orchestrator.executor.replay_names import REPLAYED
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.question import Approve, Question
from orchestrator.kernel.records import Diverged
from orchestrator.tools.result import Risk, risk_at_most

if TYPE_CHECKING:
    from orchestrator.executor.tape import Tape

_SHOWN = 2000
"""Characters of a prompt that a question about a live call shows."""


async def admit_live(
    under_way: UnderWay, tape: Tape, effect: Effect[Any], key: str, wanted: str, occurrence: int, why: str = ""
) -> None:
    """Return if a live call may be made.

    Raises:
        Suspend: a person is asked first.
        Refused: the replay ends here.
    """
    attempt = under_way.attempt
    activation = attempt.activation
    if (tape.live == "never" or not tape.is_live(activation)) and not inside.get():
        _note(attempt, tape, effect, wanted, occurrence, why)
    if tape.live == "never":
        raise end_replay(attempt, f"{effect.kind} {effect.name}: {why or 'the replayed run did not ask this'}")
    args = effect.request.get("args")
    if not _is_asked_about(attempt, tape, effect, args):
        return
    question = _question(attempt, effect, key, why)
    if question.id not in activation.answers:
        await under_way.settle_down()
    answer = answer_to(attempt, question)
    if not isinstance(answer, Approve):
        raise end_replay(attempt, f"{effect.kind} {effect.name} was not allowed")


def _is_asked_about(attempt: Attempt, tape: Tape, effect: Effect[Any], args: object) -> bool:
    if effect.irreversible:
        return False  # a fork asks about these, and says what is known of them
    if effect.kind != "tool":
        return tape.live == "ask"
    approve = attempt.log.machine.approve
    if tape.was_approved(effect.name, args) or (
        approve is not None and risk_at_most(effect.risk, cast("Risk", approve))
    ):
        return False
    return tape.live == "ask" or asks_about(attempt.log.machine.plan.graph, effect.risk)


def _note(attempt: Attempt, tape: Tape, effect: Effect[Any], wanted: str, occurrence: int, why: str) -> None:
    """Journal that the replay diverges here, once."""
    log, activation = attempt.log, attempt.activation
    if (activation.key, wanted, occurrence) in tape.diverged:
        return
    log.push(
        Diverged(
            **log.at(activation),
            kind=effect.kind,
            name=effect.name,
            digest=wanted,
            occurrence=occurrence,
            attempt=activation.attempt,
            request=effect.request if effect.stored is None else effect.stored(),
            why=why or "the replayed run did not ask this",
        )
    )  # fmt: skip


def end_replay(attempt: Attempt, why: str) -> Refused:
    """End a replay: cancel its run. Gives the signal to raise in the node."""
    Stop("cancel", REPLAYED, f"diverged: {why}").apply(attempt.log)
    signal = Refused()
    attempt.signalled(signal)
    return signal


def _question(attempt: Attempt, effect: Effect[Any], key: str, why: str) -> Question:
    """The question whether a live call is to be made. Its id follows from the call."""
    activation = attempt.activation
    name = hash_id(activation.key, "live", key, *asking_again(activation))
    payload: dict[str, object] = {"call": effect.name, "kind": effect.kind, "effect": effect.effect}
    if effect.kind == "model":
        messages = effect.request.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else {}
        payload["prompt"] = str(last.get("content", ""))[:_SHOWN] if isinstance(last, dict) else ""
    else:
        payload["args"] = effect.request.get("args", effect.request)
    if effect.kind == "tool":
        payload["risk_of_call"] = effect.risk
    question = Question(
        id=name,
        kind="approval",
        node=activation.node,
        path=activation.path,
        prompt=f"Call {effect.name}? {why or 'The replayed run did not make this call'}. Without it the replay ends.",
        payload=payload,
    )
    return identified(attempt, question)
