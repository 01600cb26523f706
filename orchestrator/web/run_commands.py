"""Commands to runs: start, answer, resume, pause, cancel, fork, replay, send, delete.

A request never drives a run: it continues in the background of the executor, so a client that disconnects neither
delays nor interrupts it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from orchestrator.errors import StaleAnswer
from orchestrator.executor import Run
from orchestrator.executor.commands import unchecked
from orchestrator.graph.limits import Limits
from orchestrator.kernel.records import Answered, Asked, Record
from orchestrator.stores.base import Archiving, RunInfo
from orchestrator.tasks import away
from orchestrator.views.untaken_events import not_taken
from orchestrator.web import documents, forks, problems, requests
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import HttpProblem

_STOPPING = 10.0
"""Seconds in which a pause or cancellation reaches its run if no request waits for the result."""


async def start(call: Call[requests.NoQuery, requests.StartBody]) -> documents.RunResult:
    """Start a run; with `wait`, return when it ends or pauses, or after a time limit."""
    body, executor = call.body, call.executor
    if body.wait:
        call.service.streams.check()
    graph, approve = call.with_model(await call.graph(body.graph), body.model), call.risk(body.approve)
    await call.check_new(body.run_id, graph.name, body.labels)
    run_id = os.urandom(8).hex() if body.run_id is None else body.run_id
    # The references stay those of the server, as they were sealed: the stored graph has the name of the model.
    refs = None if call.settings.refs is None else call.settings.refs(run_id, graph.name)
    new = RunInfo(run_id, graph.name, "running", body.labels)
    await executor.submit(
        graph,
        body.input,
        run_id=run_id,
        labels=body.labels,
        approve=approve,
        limits=await call.limits(body.limits, graph.limits, new),
        refs=refs,
        by=call.principal,
    )
    if body.wait:
        async with call.waiting():
            return await documents.result_of(await executor.wait(run_id))
    return await documents.result_of(await executor.load(run_id))


async def answer(call: Call[requests.NoQuery, requests.AnswerBody]) -> documents.RunResult:
    """Answer a question; the run continues in the background."""
    body, executor = call.body, call.executor
    by = call.by(body.by)
    await call.check_answers([body.question])
    try:
        run = await executor.answer(
            call.run_id, body.question, body.answer(), by=by, digest=body.digest, background=True
        )
    except StaleAnswer as error:
        problem = problems.problem_of(error)
        records = await executor.store.read(call.run_id)
        became = await away(lambda: _became(records, body.question))
        problem.members |= {"run_id": call.run_id, "question": body.question, "became": became}
        if became["by"]:
            problem.detail = f"{problem.detail}; {became['by']} answered it"
        raise problem from None
    return await documents.result_of(run)


def _became(records: list[Record], question: str) -> dict[str, object]:
    """Return the state of a question: `answered` and by whom, `closed` without an answer, or still `open`."""
    asked = max((one.seq for one in records if isinstance(one, Asked) and one.question.id == question), default=0)
    answers = [one for one in records if isinstance(one, Answered) and one.question == question and one.seq > asked]
    if not answers:
        last = records[-1]
        closed = last.type == "ended"
        return {"status": "closed" if closed else "open", "by": "", "seq": last.seq if closed else asked, "ts": last.ts}
    last = answers[-1]
    by = "a rule" if last.policy else last.by
    return {
        "status": "answered",
        "by": by,
        "seq": last.seq,
        "ts": last.ts,
        "answer": documents.blank(last.answer.model_dump(mode="json")),
    }


async def resume(call: Call[requests.NoQuery, requests.ResumeBody]) -> documents.RunResult:
    """Resume a run in the background."""
    body = call.body
    if call.settings.scratch and body.limits is not None and body.limits.model_fields_set & {"steps", "seconds"}:
        raise problems.HttpProblem(
            403, "limits-refused", "the step and time limits of a try cannot be changed: start a new try"
        )
    limits = None
    if body.limits is not None:
        root = (await call.executor.load(call.run_id)).machine.root
        limits = await call.limits(body.limits, Limits() if root is None else root.limits, call.run)
    run = await call.executor.resume(
        call.run_id,
        retry=body.retry,
        limits=limits,
        approve=call.risk(body.approve),
        accept_changes=body.accept_changes,
        background=True,
        by=call.principal,
    )
    return await documents.result_of(run)


async def pause(call: Call[requests.NoQuery, requests.StopBody]) -> documents.RunResult:
    """Pause a run, and wait for its running steps to end, up to a time limit."""
    return await _stopped(call, call.executor.pause)


async def cancel(call: Call[requests.NoQuery, requests.StopBody]) -> documents.RunResult:
    """Cancel a run."""
    return await _stopped(call, call.executor.cancel)


async def _stopped(
    call: Call[requests.NoQuery, requests.StopBody], stop: Callable[..., Awaitable[Run]]
) -> documents.RunResult:
    by = call.by(call.body.by)
    async with call.waiting(_STOPPING):
        return await documents.result_of(await stop(call.run_id, by=by, reason=call.body.reason))
    return await documents.result_of(await call.executor.load(call.run_id))


async def fork(call: Call[requests.NoQuery, requests.ForkBody]) -> documents.RunResult:
    """Make a fork, which continues in the background."""
    body, executor = call.body, call.executor
    labels = (await call.labelled(call.run)).labels
    await call.check_new(body.run_id, call.run.graph, {**labels, **body.labels})
    changes = body.changes(await forks.version_of(call))
    if body.start:
        await executor.forks.preview(call.run_id, **changes)  # refused early if it cannot continue here
    await call.check_answers(body.answers or (), body.at, replaced=body.answer is not None)
    made = await executor.fork(call.run_id, **changes, by=call.by(body.by), start=False)
    if body.start and any(question.kind == "pause" for question in made.waiting):
        made = await executor.resume(made.run_id, background=True, by=call.principal)
    return await documents.result_of(made)


async def replay(call: Call[requests.NoQuery, requests.ReplayBody]) -> documents.ReplayDocument:
    """Replay a run."""
    body = call.body
    graph = None if body.graph is None else await call.graph(body.graph)
    # A replay has no labels of its own; those of the run decide whose it is.
    labels = (await call.labelled(call.run)).labels
    await call.check_new(body.run_id, call.run.graph if graph is None else graph.name, labels)
    await call.check_answers((), body.at, replaced=body.answer is not None)
    found = await call.executor.replay(
        call.run_id,
        graph,
        update=body.update,
        result=body.result,
        answer=None if body.answer is None else body.answer.answer(),
        at=body.at,
        approve=call.risk(body.approve),
        live=body.live,
        replay_id=body.run_id,
        by=call.by(body.by),
        digests=None if body.answer is None else [body.answer.digest],
    )
    return await away(lambda: documents.ReplayDocument(**documents.blank(found.to_json())))


async def send(call: Call[requests.NoQuery, requests.SendBody]) -> documents.SentResult:
    """Send an event to a run, which continues in the background."""
    body = call.body
    by = call.by(body.by)
    machine = (await call.executor.load(call.run_id)).machine
    warning = not_taken(machine, body.event, body.data) or unchecked(machine, body.event) or None
    run = await call.executor.send(call.run_id, body.event, body.data, id=body.id, by=by, background=True)
    return documents.SentResult(**vars(await documents.result_of(run)), warning=warning)


async def archive(call: Call[requests.NoQuery]) -> documents.ArchivedResult:
    """Move the records of a run to the archive.

    Raises:
        HttpProblem: the server has no archive, or the run cannot be archived now.
    """
    if not isinstance(call.executor.store, Archiving):
        raise HttpProblem(409, "archive-off", "this server has no archive: start it with ORCHESTRATOR_ARCHIVE set")
    done = await call.executor.archive(run_ids=[call.run_id])
    if call.run_id in done.skipped:
        raise HttpProblem(409, "not-archived", f"run {call.run_id!r} is not archived: {done.skipped[call.run_id]}")
    archived = (await call.executor.store.info(call.run_id)).archived
    return documents.ArchivedResult.model_validate({"archived": None if archived is None else archived.to_json()})


async def delete(call: Call[requests.DeleteQuery]) -> documents.Deleted:
    """Delete a run."""
    deleted = await call.executor.delete(call.run_id, children=call.query.children, by=call.principal)
    for run_id in deleted:
        call.service.forget(run_id)
    return documents.Deleted(deleted=deleted)
