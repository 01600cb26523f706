"""What a fork of a run asks before it makes a call that cannot be undone: its parent may have made it already."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from orchestrator.errors import EffectFailed, RunConflict, StoreError
from orchestrator.executor.call_guard import CallDenied
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.effects.family import RECORDED, known_calls
from orchestrator.executor.effects.questions import answer_to, asking_again, identified
from orchestrator.executor.effects.under_way import UnderWay
from orchestrator.executor.interrupts import Lost
from orchestrator.jsontypes import canonical
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.question import FAMILY, Approve, Deny, Question
from orchestrator.kernel.records import Asked
from orchestrator.kernel.state import Activation
from orchestrator.tools.truncation import cut

if TYPE_CHECKING:
    from orchestrator.executor.effects.family import FamilyCall

_SHOWN = 500
"""Characters of arguments or of a result in a prompt; the payload has all of them."""
_MOST = 3
"""Calls that a prompt tells of."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result that a call had in another run, and has here without being made."""

    result: object


async def call_in_fork(
    under_way: UnderWay, effect: Effect[Any], key: str, asked_for: Collection[str]
) -> Adopted | None:
    """Whether a fork may make a call that cannot be undone: None if so; or the result that it has without being made.

    A person is asked, unless they approved just this call since the run was forked, and no relative has made it.

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
    log, activation = attempt.log, attempt.activation
    name = question_id(activation, key)
    calls: Sequence[FamilyCall] = ()
    gone: Sequence[str] = ()
    if name not in activation.answers:
        try:
            calls, gone = await known_calls(log.journal.store, log.machine, activation, effect, asked_for)
        except StoreError as error:
            raise attempt.signalled(Lost(error)) from error
        approved = log.guard is not None and log.guard.approved_by_person(effect.name, _args(effect))
        if approved and not calls and not gone:
            return None
        await under_way.settle_down()
    answer = answer_to(attempt, fork_question(attempt, effect, name, calls, gone))
    if isinstance(answer, Approve):
        return None
    if isinstance(answer, Deny):
        raise CallDenied(effect.name, answer.reason)
    return Adopted(await _recorded(attempt, name))


def question_id(activation: Activation, key: str) -> str:
    """The id of the question before the call with this key."""
    return hash_id(activation.key, "in a fork", key, *asking_again(activation))


def fork_question(
    attempt: Attempt, effect: Effect[Any], name: str, calls: Sequence[FamilyCall], gone: Sequence[str]
) -> Question:
    """The question before a call.

    Args:
        attempt: the step's attempt.
        effect: the call.
        name: the question's id.
        calls: what other runs of the family know of it.
        gone: relatives that are deleted.
    """
    activation, args = attempt.activation, _args(effect)
    payload: dict[str, object] = {
        "tool": effect.name, "args": args, "risk": effect.risk, "effect": effect.effect,
        FAMILY: [call.shown() for call in calls],
    }  # fmt: skip
    if gone:
        payload["deleted"] = list(gone)
    choices = (RECORDED,) if any(call.same and call.status == "returned" for call in calls) else ()
    question = Question(
        id=name,
        kind="approval",
        node=activation.node,
        path=activation.path,
        prompt=_prompt(effect.name, calls, gone, recorded=bool(choices)),
        payload=payload,
        choices=choices,
    )
    return identified(attempt, question, effect.digest)


def _args(effect: Effect[Any]) -> object:
    return effect.request.get("args", effect.request)


def _prompt(name: str, calls: Sequence[FamilyCall], gone: Sequence[str], *, recorded: bool) -> str:
    """The question in words."""
    told = [said_of(call) for call in calls[:_MOST]]
    if len(calls) > _MOST:
        told.append(f"{len(calls) - _MOST} more calls are in the payload.")
    told += [f"Run {run}, which it comes from, is deleted or damaged: what it did since is not known." for run in gone]
    if not told:
        told.append("No run that it is related to has made this call.")
    how = f' Answer "{RECORDED}" to take the result of that call without making it again.' if recorded else ""
    return f"Call {name}? This run is a fork. {' '.join(told)}{how}"


def said_of(call: FamilyCall) -> str:
    """A call that was made before, in words."""
    args = "the same arguments" if call.same else f"other arguments, {_cut(call.args)},"
    became = {
        "returned": f"returned {_cut(call.result)}",
        "failed": f"failed: {cut(call.error, _SHOWN)}",
        "unknown": f"may have happened{f' ({cut(call.error, _SHOWN)})' if call.error else ''}",
    }[call.status]
    return f"In run {call.run} it was called with {args} and {became} (record {call.seq})."


def _cut(value: object) -> str:
    return cut(canonical(cast("Any", value)), _SHOWN)


async def _recorded(attempt: Attempt, name: str) -> object:
    """The result that the question showed when it was answered."""
    log = attempt.log
    try:
        await log.durable()
        records = await log.journal.store.read(log.run_id)
    except (StoreError, RunConflict) as error:
        raise attempt.signalled(Lost(error)) from error
    asked = [one.question for one in records if isinstance(one, Asked) and one.question.id == name]
    shown: Any = asked[-1].payload.get(FAMILY) if asked else None
    for call in shown if isinstance(shown, list) else ():
        if isinstance(call, Mapping) and call.get("same") and call.get("status") == "returned":
            return call.get("result")
    raise EffectFailed(f"run {log.run_id!r}: question {name!r} showed no result of another run", type="UserDenied")
