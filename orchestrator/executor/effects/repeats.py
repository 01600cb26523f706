"""What a step of a reopened run asks before a call that cannot be undone, where an attempt that failed made another.

Repaired code may call with other arguments: then the journal cannot give the old result back, and only a person knows
whether both calls are meant.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import anyio

from orchestrator.executor.call_guard import CallDenied
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.effects.family import FamilyCall, known_of
from orchestrator.executor.effects.fork_questions import said_of
from orchestrator.executor.effects.questions import answer_to, asking_again, identified, unused_id
from orchestrator.executor.effects.reopened import certainly_failed
from orchestrator.executor.effects.replay import is_suspended, settled_of
from orchestrator.executor.effects.under_way import UnderWay, patience
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.question import FAMILY, Deny, Question


async def ask_before_another(under_way: UnderWay, effect: Effect[Any], key: str, asked_for: Collection[str]) -> None:
    """Return if a call may be made.

    Args:
        under_way: the effects of the step.
        effect: the call.
        key: the key that the call would have.
        asked_for: keys of the calls that the step has asked for already.

    Raises:
        Suspend: there is no answer yet.
        CallDenied: the person denied the call.
    """
    attempt = under_way.attempt
    activation = attempt.activation
    if not activation.reopened:
        return
    waits = patience()
    while True:
        calls = [known_of(attempt.log.run_id, entry, effect.digest) for entry in _left(attempt, effect, asked_for)]
        pause = next(waits, None) if calls else None
        if pause is None:
            break
        await anyio.sleep(pause)  # calls beside each other may come in another order than before
    if not calls:
        return
    name = unused_id(activation, hash_id(activation.key, "another", key, *asking_again(activation)))
    if name not in activation.answers:
        await under_way.settle_down()
    answer = answer_to(attempt, _question(attempt, effect, name, calls))
    if isinstance(answer, Deny):
        raise CallDenied(effect.name, answer.reason)


def _left(attempt: Attempt, effect: Effect[Any], asked_for: Collection[str]) -> list[EffectEntry]:
    """Calls of the same kind that attempts which failed made, or may have made, and that the step has not asked for."""
    activation = attempt.activation
    return [
        entry
        for entry in attempt.log.machine.ledger.of(activation.key)
        if entry.intended.effect == "irreversible"
        and entry.intended.name == effect.name
        and entry.intended.attempt < activation.attempt
        and entry.intended.seq < activation.reopened
        and entry.intended.key not in asked_for
        and not is_suspended(entry)
        and not certainly_failed(entry.intended, settled_of(entry))
    ]


def _question(attempt: Attempt, effect: Effect[Any], name: str, calls: list[FamilyCall]) -> Question:
    activation = attempt.activation
    payload: dict[str, object] = {
        "tool": effect.name, "args": effect.request.get("args", effect.request), "risk": effect.risk,
        "effect": effect.effect, FAMILY: [call.shown() for call in calls],
    }  # fmt: skip
    said = " ".join(map(said_of, calls[:3]))
    question = Question(
        id=name,
        kind="approval",
        node=activation.node,
        path=activation.path,
        prompt=f"Call {effect.name}? An attempt of this step that failed made another call. {said}",
        payload=payload,
    )
    return identified(attempt, question, effect.digest)
