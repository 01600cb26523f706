"""The questions of a replay: they get the answers that the replayed run got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.executor.answers import about
from orchestrator.executor.commands import Stop
from orchestrator.executor.recording import question_digest
from orchestrator.executor.replay_names import REPLAYED
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel.question import LATE, Answer, Question, in_family
from orchestrator.kernel.records import Answered, Diverged
from orchestrator.kernel.state import Activation

if TYPE_CHECKING:
    from orchestrator.executor.tape import Tape


def answer_from_tape(log: RunLog, tape: Tape, activation: Activation, question: Question) -> bool:
    """Answer an open question of a replay as the replayed run was answered.

    What was not answered there stays open. What was not asked there is journaled, and with `live="never"` the replay
    ends.

    Returns:
        Whether nothing more is to be done about it.
    """
    if in_family(question) or tape.is_live(activation) or tape.asks_about_live_call(activation):
        return False  # no recorded answer admits a call
    found = tape.question(activation, question)
    answer: Answer | None = LATE if found is None and question.kind == "timer" else None  # nothing is asked by it
    if found is not None:
        answer = None if found.answered is None else found.answered.answer
    if answer is not None:
        shown = about(question)
        log.push(Answered(**log.now(), question=question.id, answer=answer, by=REPLAYED, policy=True, about=shown))
        return True
    if found is not None:
        return False
    why = "the replayed run did not ask this question"
    request = {"prompt": question.prompt, "payload": dict(question.payload), "choices": list(question.choices)}
    wanted = question_digest(question)
    log.push(
        Diverged(
            **log.at(activation), kind="question", name=question.kind, digest=wanted, attempt=activation.attempt,
            request=request, why=why,
        )
    )  # fmt: skip
    if tape.live == "never":
        Stop("cancel", REPLAYED, f"diverged: {why}").apply(log)
        return True
    return False
