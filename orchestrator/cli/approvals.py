"""What a stored run says was approved: its policy, its answers, and the calls that are still to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.redaction import redacted
from orchestrator.render.terminal import texts
from orchestrator.visible import narrow

if TYPE_CHECKING:
    from orchestrator.executor import Executor, Run

_SHOWN = 160
"""Characters of a call's arguments that are shown when it was answered."""


async def approvals(executor: Executor, run: Run) -> list[str]:
    """Lines that say what the run's journal approves, and what of it is believed here.

    Believed is what this user's command line wrote into this very store. All else is asked for again before the run
    does it.
    """
    from orchestrator.kernel.question import Approve, Deny, parts_of
    from orchestrator.kernel.records import Answered, Asked, Forked
    from orchestrator.kernel.seals import audit, live_answers
    from orchestrator.kernel.status import FINAL

    machine = run.machine
    records = await executor.store.read(run.run_id, upto=run.seq)
    checked = audit(executor.seal, run.run_id, records)
    trusting = executor.seal is None

    def doubt(believed: bool) -> str:
        over = run.status in FINAL
        return "" if believed or trusting or over else "  (not from your command line: asked again)"

    lines = []
    if machine.approve is not None:
        lines.append(
            f"policy  calls up to risk {machine.approve} are approved without asking{doubt(checked.believes_policy())}"
        )
    asked = {one.question.id: one.question for one in records if isinstance(one, Asked)}
    waiting = {name for name, _ in live_answers(machine)}
    replaced = {one.at: one for one in records if isinstance(one, Forked) and one.answer is not None}
    for record in records:
        question = asked.get(record.question) if isinstance(record, Answered) else None
        if question is None or not isinstance(record, Answered):
            continue
        fork = replaced.get(record.seq)
        if fork is not None:
            record = record.model_copy(update={"seq": fork.seq, "answer": fork.answer, "by": fork.by, "policy": False})
        answer = record.answer
        about = parts_of(question.kind, question.payload).call
        args = answer.args if isinstance(answer, Approve) and answer.args is not None else about.get("args")
        tool = about.get("tool")
        pending = record.question in waiting
        given = texts.compact(args)
        if not pending:  # what is still to be done is shown whole
            given = texts.short(str(redacted(given)), _SHOWN)
        call = "" if tool is None else f" {narrow(str(tool))} {given}"
        said = answer.type if isinstance(answer, Approve | Deny) else "answer"
        who = "policy" if record.policy else narrow(record.by)
        lines.append(
            f"{'pending' if pending else 'answered'}  {record.seq}  {said}{redacted(call)}  by {who or '?'}"
            + (doubt(record.seq in checked.believed) if pending else "")
        )
    return lines
