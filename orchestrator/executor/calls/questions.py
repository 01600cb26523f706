"""Questions of a step: their ids and digests, their answers, and the question about an unknown outcome.

why           what is known
interrupted   the process, or the task that waited for the call, was stopped while it was in progress
timeout       time ran out before the other side answered
connection    the connection to the other side broke
cancelled     the run stopped it: a cancel, a lost race, a limit
refused       it returned, and its result could not be used
failed        a person answered before that it counts as failed
returned      it returned; the step, which was stopped after it, makes it with other arguments
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar, cast

from orchestrator.executor.calls.effect import Attempt, Effect
from orchestrator.executor.calls.reuse import is_given_up, settled_of
from orchestrator.executor.commands import about
from orchestrator.executor.failures import Suspend
from orchestrator.graph.isolation import isolated
from orchestrator.json import digest, digest_in_pieces
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.question import Answer, Question, QuestionKind, until
from orchestrator.kernel.state import Activation, hash_id
from orchestrator.tools.result import in_words
from orchestrator.tools.tool import Tool
from orchestrator.values import utc
from orchestrator.views.call_questions import CHOICES

T = TypeVar("T")

_WORDS = {
    "interrupted": "it was under way when the run was stopped",
    "restored": "the run was restored from a backup and may have made it since",
    "timeout": "time ran out while it was under way",
    "connection": "the connection broke while it was under way",
    "cancelled": "it was cancelled while it was under way",
    "failed": "by an earlier answer it counts as failed",
}


def make_question(
    attempt: Attempt,
    occurrence: int,
    kind: QuestionKind,
    *,
    unordered: Sequence[str] = (),
    prompt: str,
    payload: Mapping[str, object],
    choices: Sequence[str],
    schema: Mapping[str, object] | None,
    deadline: float | None,
    tool: Tool | None,
    event: str = "",
    match: Mapping[str, object] | None = None,
) -> Question:
    """Make a question of a step. Its id derives from the step and the content, so that a replay asks the same question.

    Args:
        occurrence: the number of the question, among those of the node's own task or those with the same `unordered`.
        unordered: digest of all that is asked, for questions without an order: those of concurrent tasks.
        deadline: Unix seconds.
    """
    subject = [payload.get("tool"), tool.approval_digest if tool is not None else "", payload.get("args")]
    about = digest_in_pieces(subject) if kind == "approval" else ""
    activation = attempt.activation
    name = unused_id(activation, hash_id(activation.key, str(occurrence), about, *unordered, *asking_again(activation)))
    question = Question(
        id=name,
        kind=kind,
        node=attempt.activation.node,
        path=attempt.activation.path,
        prompt=prompt,
        payload=dict(payload),
        choices=tuple(choices),
        schema=None if schema is None else dict(schema),
        deadline=deadline,
        event=event,
        match=dict(match or {}),
    )
    return identified(attempt, question, subject[1])


def identified(attempt: Attempt, question: Question[Any, Any], *more: object) -> Question:
    """Return a question with its digest, which covers everything shown except its times, and what else is given."""
    timeless = question.kind == "unknown_outcome"  # the key and the attempt of its call identify it
    payload = {name: value for name, value in question.payload.items() if not (timeless and name == "began")}
    shown = [question.prompt, payload, list(question.choices), question.schema_]
    place = [attempt.log.run_id, question.path, question.node, question.id]
    return question.model_copy(update={"digest": digest_in_pieces([*place, *shown, *more])})


def passed_on(attempt: Attempt, question: Question, faults: Sequence[str]) -> Question:
    """Return a question of another run, asked by the step that started that run.

    Args:
        faults: why earlier answers did not fit.
    """
    activation = attempt.activation
    again = asking_again(activation)
    name = unused_id(activation, _passed_on_id(activation, question.id, len(faults), again))
    return question.model_copy(
        update={
            "id": name,
            "node": activation.node,
            "path": activation.path,
            "prompt": f"{question.prompt} ({faults[-1]})" if faults else question.prompt,
            "digest": digest([attempt.log.run_id, activation.path, activation.node, question.digest, name]),
        }
    )


def _passed_on_id(activation: Activation, question: str, faults: int, again: Sequence[str]) -> str:
    """Return the id under which a step asks a question of another run."""
    return hash_id(activation.key, "passed on", question, *([str(faults)] if faults else []), *again)


def was_passed_on(activation: Activation, question: str, asked: Collection[str]) -> bool:
    """Return True if a step asked a question of a run that it started.

    Args:
        activation: the step.
        question: the question's id in that run.
        asked: the ids of the step's questions.
    """
    counts = [(), *(("again", str(count + 1)) for count in range(activation.withdrawn))]
    for faults, again in product(range(len(asked)), counts):
        name = _passed_on_id(activation, question, faults, again)
        for _ in range(len(activation.asked_before) + 1):
            if name in asked:
                return True
            name = hash_id(name, "again")
    return False


def asking_again(activation: Activation) -> tuple[str, ...]:
    """Return what is added to the ids of questions whose answers were withdrawn, so that old answers do not fit."""
    return ("again", str(activation.withdrawn)) if activation.withdrawn else ()


def unused_id(activation: Activation, name: str) -> str:
    """Return an unused id for a question. The end of a run withdraws open questions: later they need another id."""
    while name in activation.asked_before:
        name = hash_id(name, "again")
    return name


def as_before(activation: Activation, timer: Question) -> Question:
    """Return a timer that the end of the run withdrew and that is asked again, with its earlier time."""
    due = next((due for name, due in activation.timers.items() if hash_id(name, "again") == timer.id), None)
    return timer if due is None else timer.model_copy(update={"prompt": until(due), "deadline": due})


def answer_to(attempt: Attempt, question: Question) -> Answer:
    """Return the answer to a question of this step.

    An answer to a question with the same id but another call (or other words, if the run is not trusted) does not
    count: an untrusted journal may contain questions that the step never asked.

    Raises:
        Suspend: there is no answer yet.
    """
    answered = attempt.activation.answers.get(question.id)
    approvals = attempt.log.approvals
    if answered is None or (answered.about and answered.about != about(question)):
        raise attempt.signalled(Suspend(question))
    if approvals is not None and not approvals.showed(question):
        raise attempt.signalled(Suspend(question))
    return cast(Answer, isolated(answered.answer))


# -- unknown outcomes ------------------------------------------------------------------------------------------------


def why_unknown(entry: EffectEntry) -> str:
    """Return the reason why the end of an effect is not known, as one word."""
    kind, _, returned = _error_of(entry)
    if returned is not None:
        return "refused"
    settled = settled_of(entry)
    if settled is not None and settled.given_up:
        return "failed"
    if settled is not None and settled.ok and not settled.unknown:
        return "returned"
    if kind in ("", "Cancelled"):
        return "cancelled" if kind else "interrupted"
    return "timeout" if "Timeout" in kind else "connection"


def _error_of(entry: EffectEntry) -> tuple[str, str, str | None]:
    """Return class and message of the error of an effect, and the value returned if its result was refused.

    Empty if it did not end with an error.
    """
    settled = settled_of(entry)
    if settled is None:
        return "", "", None
    if settled.error is not None:
        return settled.error.type, settled.error.message, settled.returned
    # A tool's result that represents an error.
    result: Mapping[str, object] = settled.result if isinstance(settled.result, Mapping) else {}
    metadata = result.get("metadata")
    kind = metadata.get("exception") if isinstance(metadata, Mapping) else None
    return str(kind or "Error"), str(result.get("error", "")), None


def returned_by(entry: EffectEntry) -> str | None:
    """Return the returned value of a call whose result was refused, as text; None for others."""
    return _error_of(entry)[2]


def outcome_question_id(activation: Activation, entry: EffectEntry, again: int = 0) -> str:
    """Return the id of the question about an effect's outcome. `again`: how often it was asked before."""
    intended, settled = entry.intended, settled_of(entry)
    parts = [str(intended.seq)] if not again else [str(intended.seq), str(again)]
    if settled is not None and (is_given_up(settled) or (settled.ok and not settled.unknown)):
        parts.append(f"after {settled.seq}")
    return unused_id(activation, hash_id(activation.key, "unknown", intended.key, *parts, *asking_again(activation)))


def outcome_question(
    attempt: Attempt, entry: EffectEntry, again: int, doubts: Mapping[str, str], effect: Effect[Any]
) -> Question:
    """Return the question about an effect's outcome.

    Args:
        again: number of earlier answers that did not fit.
        doubts: errors of other ways to determine it, or of the last answer.
        effect: the effect that the step requests; its `returns` is the schema of the result.
    """
    intended, activation = entry.intended, attempt.activation
    why, (_, error, returned) = why_unknown(entry), _error_of(entry)
    if why == "interrupted" and attempt.log.restored:
        why = "restored"
    began = utc(intended.ts).isoformat(timespec="seconds")
    prompt = f"It is not known whether {intended.name} happened: {_WORDS.get(why)}."
    if why == "returned" and entry.settled is not None:
        result: Any = entry.settled.result
        returned = in_words(result.get("output", result) if intended.kind == "tool" else result)
        prompt = f"{intended.name} was called and returned: {returned}."
    elif returned is not None:
        given_up = entry.settled is not None and entry.settled.given_up
        refused = f"and {_WORDS['failed']}" if given_up else f"but its result was refused: {error}"
        prompt = f"{intended.name} was called and returned, {refused}; it returned: {returned}."
    payload: dict[str, object] = {
        "tool": intended.name,
        "args": intended.request.get("args", intended.request),
        "effect": intended.effect,
        "key": intended.key,
        "attempt": intended.attempt,
        "began": began,
        "why": why,
        **({"error": error} if error else {}),
        **({} if returned is None else {"returned": returned}),
        **doubts,
    }
    name = outcome_question_id(activation, entry, again)
    schema = None if effect.returns is None else effect.returns()
    question = Question(
        id=name,
        kind="unknown_outcome",
        node=activation.node,
        path=activation.path,
        prompt=prompt + "".join(f" ({words})" for words in doubts.values()),
        payload=payload,
        choices=CHOICES,
        schema=None if schema is None else dict(schema),
    )
    return identified(attempt, question)


def failed_words(name: str) -> str:
    """Return the error message of an effect that failed according to a person's answer."""
    return f"{name} failed, according to the answer"
