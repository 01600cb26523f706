"""Records about questions, their answers, and pauses."""

from __future__ import annotations

from orchestrator.kernel import admission
from orchestrator.kernel import records as r
from orchestrator.kernel.endings import stop
from orchestrator.kernel.handlers.forking import withdraw
from orchestrator.kernel.question import Question
from orchestrator.kernel.reservations import release_all
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase

PAUSE = "pause"
"""The id of the question that an outside pause asks."""


def asked(run: RunState, record: r.Asked) -> None:
    """Have a step wait for an answer."""
    activation = run.running.get(record.activation)
    if activation is None:
        return
    stop(run, activation.key)
    activation.phase = Phase.ASKING
    question = record.question
    run.questions[question.id] = question
    if question.deadline is not None:
        run.asked_at[question.id] = record.ts
    run.askers[question.id] = activation


def answered(run: RunState, record: r.Answered) -> None:
    """Have the step that asked go on."""
    if run.questions.pop(record.question, None) is None:
        return
    run.asked_at.pop(record.question, None)
    if record.question == PAUSE:
        _unpause(run)
        return
    activation = run.askers.pop(record.question)
    activation.answers = {**activation.answers, record.question: record}
    activation.phase = Phase.QUEUED
    activation.frame.queue.append(activation)
    admission.mark(run, activation.frame)


def answers_withdrawn(run: RunState, record: r.AnswersWithdrawn) -> None:
    """Take answers away from the steps that have them."""
    if record.policy:
        run.approve = None
    withdraw(run, record.questions)


def paused(run: RunState, record: r.Paused) -> None:
    """Admit no new steps until the question that this asks is answered."""
    if run.result is not None:
        return
    run.paused = True
    prompt = f"paused{f' by {record.by}' if record.by else ''}{f': {record.reason}' if record.reason else ''}"
    run.questions[PAUSE] = Question(id=PAUSE, kind="pause", node="", prompt=prompt)


def resumed(run: RunState, record: r.Resumed) -> None:
    """Begin a new drive, with the graph and tools that it brings."""
    release_all(run)
    if record.content is not None:
        run.content = record.content
    if record.tools is not None:
        run.tools = record.tools
    if record.approve is not None:
        run.approve = record.approve
    if record.unpause:
        _unpause(run)


def _unpause(run: RunState) -> None:
    run.paused = False
    run.questions.pop(PAUSE, None)
    for frame in run.frames():
        admission.mark(run, frame)
