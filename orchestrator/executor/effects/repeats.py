"""What a step asks before a call that cannot be undone, where it made another in an earlier attempt, or before a crash.

Repaired code may call with other arguments, and so may code whose arguments differ each time, such as those of a model:
then the journal cannot give the old result back, and only a person knows whether both calls are meant.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import anyio

from orchestrator.executor.call_guard import CallDenied
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.effects.family import known_of
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
    waits = patience()
    while left := _left(under_way, effect, asked_for):
        pause = next(waits, None)
        if pause is None:
            break
        await anyio.sleep(pause)  # calls beside each other may come in another order than before
        attempt.check_running()
    if not left:
        return
    name = unused_id(activation, hash_id(activation.key, "another", key, *asking_again(activation)))
    if name not in activation.answers:
        await under_way.settle_down()
    answer = answer_to(attempt, _question(attempt, effect, name, left))
    if isinstance(answer, Deny):
        raise CallDenied(effect.name, answer.reason)


def _left(under_way: UnderWay, effect: Effect[Any], asked_for: Collection[str]) -> list[EffectEntry]:
    """Calls of the same kind that happened, or may have, and that the step has not asked for: those of attempts that
    failed, and those of this attempt that have no known end.

    Calls inside of one whose result was given back are not asked for again.
    """
    attempt, left, over = under_way.attempt.activation.attempt, list[EffectEntry](), set[str]()
    for entry in under_way.before:
        intended, settled = entry.intended, settled_of(entry)
        if intended.inside in over or (intended.key in asked_for and settled is not None):
            over.add(intended.key)
        elif (
            intended.effect == "irreversible"
            and intended.name == effect.name
            and (intended.attempt < attempt or settled is None or settled.unknown)
            and intended.key not in asked_for
            and not is_suspended(entry)
            and not certainly_failed(intended, settled)
        ):
            left.append(entry)
    return left


def _question(attempt: Attempt, effect: Effect[Any], name: str, left: list[EffectEntry]) -> Question:
    activation = attempt.activation
    calls = [known_of(attempt.log.run_id, entry, effect.digest) for entry in left]
    failed = any(entry.intended.attempt < activation.attempt for entry in left)
    why = "An attempt of this step that failed made" if failed else "When this step was stopped, it was making"
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
        prompt=f"Call {effect.name}? {why} another call. {said}",
        payload=payload,
    )
    return identified(attempt, question, effect.digest)
