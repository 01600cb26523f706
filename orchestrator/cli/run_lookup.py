"""Stored runs, and the approvals in their journals. Nothing here needs the code of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from orchestrator.cli import exits, signals, storage
from orchestrator.cli.output import redacted
from orchestrator.cli.trust import journal_seal
from orchestrator.errors import RunUnknown
from orchestrator.executor import Executor
from orchestrator.kernel.question import Approve, parts_of
from orchestrator.kernel.records import Answered, Asked, Forked
from orchestrator.kernel.seals import audit, live_answers
from orchestrator.kernel.status import FINAL
from orchestrator.render.terminal import texts
from orchestrator.render.terminal.event_lines import answer_text
from orchestrator.visible import narrow

if TYPE_CHECKING:
    from orchestrator.executor import Run, Seal


T = TypeVar("T")


def looking(
    url: str,
    look: Callable[[Executor], Awaitable[T]],
    *,
    writes: bool = False,
    archive: str | None = None,
    sealed: Seal | None = None,
) -> T:
    """Return the result of `look` with an executor that has no code; `writes`: True if it journals anything.

    `archive`: the URL of the store's archive; None: the one set in the environment. `sealed`: the seal of the records;
    None: that of the command line.

    Raises:
        KeyboardInterrupt: a signal arrived.
    """

    async def work() -> T:

        seal, codec = sealed or journal_seal(url, make=writes), storage.codec_of_environment()
        async with Executor(store=url, seal=seal, codec=codec, archive=archive) as executor:
            return await look(executor)

    return signals.run_look(work)


def one_run(
    url: str,
    run_id: str,
    look: Callable[[Executor], Awaitable[T]],
    *,
    writes: bool = False,
    sealed: Seal | None = None,
) -> T:
    """Return the result of `look` for one run; see `looking`. A store that does not exist is not created.

    Raises:
        RunUnknown: there is no such run.
    """
    if not storage.exists(url):
        raise RunUnknown(run_id)
    return looking(url, look, writes=writes, sealed=sealed)


def load(url: str, run_id: str, at: int | None = None) -> Run:
    """Return a run, or its state after its record `at`.

    Raises:
        RunUnknown: there is no such run.
        UsageError: the run has no such record.
    """
    return one_run(url, run_id, partial(loaded, run_id=run_id, at=at))


async def loaded(executor: Executor, run_id: str, at: int | None = None) -> Run:
    """Load a run, or its state after its record `at`, with an open executor."""
    run = await executor.load(run_id, at=at)
    if at is not None and run.seq < at:
        raise exits.UsageError(f"--at {at}: run {run_id!r} has {run.seq} records")
    return run


def find_run(what: str, store: str | None, at: int | None = None) -> Run | None:
    """Return the run with this id, or None."""
    try:
        return load(storage.store_url(store), what, at)
    except RunUnknown:
        return None


_SHOWN = 160
"""Characters of a call's arguments shown once it is answered."""


async def approvals(executor: Executor, run: Run) -> list[str]:
    """Return lines about the approvals in the run's journal, and which of them are trusted.

    Trusted approvals were written by this user's command line into this store. All others are asked for again.
    """

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
            record = structs.replace(record, seq=fork.seq, answer=fork.answer, by=fork.by, policy=False)
        answer = record.answer
        about = parts_of(question.kind, question.payload).call
        args = answer.args if isinstance(answer, Approve) and answer.args is not None else about.get("args")
        tool = about.get("tool")
        pending = record.question in waiting
        given = texts.compact(args)
        if not pending:  # pending calls are shown in full
            given = texts.short(str(redacted(given)), _SHOWN)
        call = "" if tool is None else f" {narrow(str(tool))} {given}"
        said = texts.short(str(redacted(answer_text(answer.model_dump()))), _SHOWN)
        who = "policy" if record.policy else narrow(record.by)
        lines.append(
            f"{'pending' if pending else 'answered'}  {record.seq}  {said}{redacted(call)}  by {who or '?'}"
            + (doubt(record.seq in checked.believed) if pending else "")
        )
    return lines
