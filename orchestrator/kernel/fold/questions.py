"""Records about questions, their answers, and pauses."""

from __future__ import annotations

from orchestrator.kernel import admission
from orchestrator.kernel import records as r
from orchestrator.kernel.endings import stop
from orchestrator.kernel.event_queue import Event, fits
from orchestrator.kernel.fold.lifecycle import withdraw
from orchestrator.kernel.fold.steps import timed_out
from orchestrator.kernel.frame import interrupt
from orchestrator.kernel.pools import release_all
from orchestrator.kernel.question import AFTER_STEP, LATE, PAUSE, Question, Value, until
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Phase


def asked(run: RunState, record: r.Asked) -> None:
    """Make a step wait for an answer."""
    activation = run.running.get(record.activation)
    if activation is None:
        return
    _wait(run, activation, record.question, record.ts)
    question = record.question
    if question.event:
        event = run.events.matching(question.event, question.match, activation.taken)
        if event is not None:
            _take(run, question, event)


def timer_set(run: RunState, record: r.TimerSet) -> None:
    """Make a step wait for a timer."""
    activation = run.running.get(record.activation)
    if activation is not None:
        _wait(run, activation, timer_question(record), record.ts)


def timer_question(record: r.TimerSet) -> Question:
    """Return the question of a step that waits for a timer."""
    return Question(
        id=record.name, kind="timer", node=record.node, path=record.path, prompt=until(record.at), deadline=record.at
    )


def timer_fired(run: RunState, record: r.TimerFired) -> None:
    """Continue the step that waits for a timer, or for an event that did not arrive in time; or end a step's graph."""
    if record.name == r.TIMEOUT:
        timed_out(run, record)
    question = run.questions.get(record.name)
    if question is not None:
        _move(run, question, r.Answered(seq=record.seq, ts=record.ts, question=question.id, answer=LATE, policy=True))


def event_received(run: RunState, record: r.EventReceived) -> None:
    """Keep an event, and deliver it to every step that waits for it."""
    event = run.events.add(record.seq, record.ts, record.name, record.data, record.id, record.by)
    if event is None or run.result is not None:
        return
    for question in list(run.questions.values()):
        waits = question.event == event.name and fits(event.data, question.match)
        if waits or question.id in record.questions:
            _take(run, question, event)
    frame = None if record.interrupts is None else run.frame_at(record.interrupts)
    if frame is not None:
        interrupt(frame, event.name)
        admission.mark(run, frame)


def _wait(run: RunState, activation: Activation, question: Question, asked_at: float) -> None:
    stop(run, activation.key)
    activation.phase = Phase.ASKING
    run.questions[question.id] = question
    run.asked[question.id] = asked_at
    if question.deadline is not None:
        run.asked_at[question.id] = asked_at
    run.askers[question.id] = activation


def _take(run: RunState, question: Question, event: Event) -> None:
    """Deliver an event to the step that asks this question."""
    run.askers[question.id].took |= 1 << event.number
    answer = Value(value=event.data)
    _move(run, question, r.Answered(seq=event.seq, ts=event.ts, question=question.id, answer=answer, by=event.by))


def _move(run: RunState, question: Question, answer: r.Answered) -> None:
    """Continue a step for another reason than a record of an answer."""
    run.delta.moved.append((run.askers[question.id], question, answer))
    _go_on(run, question, answer)


def _go_on(run: RunState, question: Question, answer: r.Answered) -> None:
    """Continue the step that asks a question with its answer."""
    del run.questions[question.id]
    run.asked_at.pop(question.id, None)
    run.asked.pop(question.id, None)
    activation = run.askers.pop(question.id)
    activation.answers = {**activation.answers, question.id: answer}
    activation.phase = Phase.QUEUED
    activation.frame.queue.append(activation)
    admission.mark(run, activation.frame)


def answered(run: RunState, record: r.Answered) -> None:
    """Continue the step that asked the question."""
    question = run.questions.get(record.question)
    if question is None:
        return
    if record.question == PAUSE:
        _unpause(run)
    else:
        _go_on(run, question, record)


def answers_withdrawn(run: RunState, record: r.AnswersWithdrawn) -> None:
    """Withdraw answers from the steps that have them."""
    if record.policy:
        run.approve = None
    withdraw(run, record.questions)


def paused(run: RunState, record: r.Paused) -> None:
    """Admit no new steps until the question of this pause is answered."""
    if run.result is not None:
        return
    run.paused = True
    prompt = f"paused{f' by {record.by}' if record.by else ''}{f': {record.reason}' if record.reason else ''}"
    run.questions[PAUSE] = Question(id=PAUSE, kind="pause", node="", prompt=prompt)
    run.asked[PAUSE] = record.ts


def resumed(run: RunState, record: r.Resumed) -> None:
    """Start a new drive, with its graph and tools."""
    release_all(run)
    if record.content is not None:
        run.content = record.content
    if record.tools is not None:
        run.tools = record.tools
    if record.refs is not None:
        run.latest_refs = record.refs
    if record.approve is not None:
        run.approve = record.approve
    if record.pause_before is not None or record.pause_after is not None:
        admission.change_breakpoints(run, record.pause_before, record.pause_after)
    if record.unpause and run.is_held and run.fork is not None and run.fork.once and run.running:
        run.questions[PAUSE] = Question(id=PAUSE, kind="pause", node="", prompt=AFTER_STEP)
    elif record.unpause:
        _unpause(run)


def _unpause(run: RunState) -> None:
    run.paused = False
    run.questions.pop(PAUSE, None)
    run.asked.pop(PAUSE, None)
    admission.let_through(run)
    for frame in run.frames():
        admission.mark(run, frame)
