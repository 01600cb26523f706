"""Records about the run as a whole: its start, its changes, its end, and the start of a fork.

A fork is a copy of a run's first records that becomes a run of its own, with changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from orchestrator.errors import StoreCorrupt
from orchestrator.graph.limits import Usage
from orchestrator.kernel import admission, migration
from orchestrator.kernel import records as r
from orchestrator.kernel.endings import finish, forget_kept, set_aside, stop
from orchestrator.kernel.fold.effects import supersede, unmake
from orchestrator.kernel.fold.steps import begin
from orchestrator.kernel.frame import new_frame
from orchestrator.kernel.pools import release_all
from orchestrator.kernel.question import AFTER_STEP, NOT_STARTED, PAUSE, Question, in_family
from orchestrator.kernel.reopening import begin_inside, raise_limits, reopen, reopen_fork
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, Phase, hash_id
from orchestrator.kernel.tokens import charge
from orchestrator.kernel.version import Version


def run_started(run: RunState, record: r.RunStarted) -> None:
    """Start the run's graph."""
    run.started, run.approve, run.content = record, record.approve, record.content
    run.tools, run.lineage = record.tools, ((record.structure, record.content),)
    key = hash_id(record.run_id)
    run.root = new_frame(run, run.plan, key, Version(run.plan.schema.decode(record.values), key=key))
    if record.limits is not None:
        run.root.limits = record.limits
    if record.pause_before or record.pause_after:
        admission.change_breakpoints(run, record.pause_before, record.pause_after)
    begin(run, run.root)


def cancelled(run: RunState, record: r.Cancelled) -> None:
    """End the run's graph at once."""
    if run.root is not None and run.result is None:
        run.cancelled, run.diverged_because = True, record.reason if record.at_divergence else ""
        finish(run, run.root, FrameResult("cancelled", run.root.trunk.values))


def diverged(run: RunState, record: r.Diverged) -> None:
    """Note that a replay made a request that the replayed run did not make."""
    run.diverged = True


def limits_changed(run: RunState, record: r.LimitsChanged) -> None:
    """Change the limits of the run's graph."""
    if run.root is not None:
        run.root.limits = record.limits
        admission.mark(run, run.root)


def reopened(run: RunState, record: r.Reopened) -> None:
    """Continue the ended run where it was (R13)."""
    reopen(run, record.limits)


def migrated(run: RunState, record: r.Migrated) -> None:
    """Continue in another version of the graph.

    Raises:
        StoreCorrupt: the graph of that version is missing.
    """
    plan = run.later.get(record.content)
    if plan is None:
        raise StoreCorrupt(run.run_id, record.seq, f"the graph {record.content!r} that it migrates to is missing")
    migration.migrate(run, record, plan)


def ended(run: RunState, record: r.Ended) -> None:
    """Record the end of the run."""
    run.ended = record
    if run.root is not None and run.result is None:
        if record.status == "exhausted":  # the limit is higher in the graph with which the run is folded now
            run.root.before_limit = set_aside(run, run.root)
        finish(run, run.root, FrameResult(record.status, run.root.trunk.values, record.error))
    if run.root is not None and run.root.result is not None and record.reduced:
        values = {**run.root.result.values, **run.plan.schema.decode(record.reduced)}
        run.root.result = structs.replace(run.root.result, values=values)
    run.questions.clear()
    run.asked.clear()


"""Key in the payload of the questions that a fork asks before calls that cannot be undone."""


def forked(run: RunState, record: r.Forked) -> None:
    """Start a fork: it keeps all settled effects, and makes its own calls from here on."""
    run.forks = (*run.forks, record)
    release_all(run)
    if record.limits is not None:
        raise_limits(run, record.limits)
    if not record.over:
        reopen_fork(run)
    for entry in run.ledger.entries():
        if entry.is_open and entry.intended.key not in record.told:
            unmake(run, entry)
    if record.key:
        supersede(run, record.key, record.result)
    withdraw(run, record.withdrawn)
    _answer_anew(run, record)
    _ask_anew(run, record)
    if record.update:
        for token in edited_tokens(run, record.branch):
            _set_values(token, record)
    run.inherited, run.saved = run.usage, Usage()
    run.diverged = False
    run.totals.begin_fork(run.running, run.seconds)
    _begin_behind(run, record)
    if record.held or record.once:
        run.paused = True
        prompt = NOT_STARTED if record.held else AFTER_STEP
        run.questions[PAUSE] = Question(id=PAUSE, kind="pause", node="", prompt=prompt)
        run.asked[PAUSE] = record.ts


def _begin_behind(run: RunState, record: r.Forked) -> None:
    """Make a replay start after the attempts that the replayed run set aside when it was reopened later."""
    root = run.root
    if root is None:
        return
    root.raised = max(root.raised, record.raised)
    for around in list(run.live_tokens()):
        kept = around.kept
        if kept is not None and around.key in run.running and _goes_on_inside(kept, record.set_aside):
            stop(run, around.key)
            begin_inside(run, around, kept)
    for name, aside in record.set_aside.items():
        token = run.activation(name)
        if name and token is None:
            continue  # the replay has not reached this step yet
        charge(run, (root,) if token is None else token.frame.line, aside.usage)
        if token is not None and token.attempt <= aside.attempts:
            _begin_at(run, token, aside.attempts + 1)


def _goes_on_inside(frame: FrameState, set_aside: Mapping[str, r.SetAside]) -> bool:
    """Return True if a failed step of a frozen graph starts again, so that the graph continues."""
    for token in () if frame.frozen is None else frame.frozen.live.values():
        if token.key in set_aside or (token.kept is not None and _goes_on_inside(token.kept, set_aside)):
            return True
    return False


def _begin_at(run: RunState, token: Activation, attempt: int) -> None:
    token.attempt, token.reopened = attempt, run.head
    token.not_before = token.backoff = token.child = None
    token.opened = False
    forget_kept(run, token)
    inner = run.inner_frames.pop(token.key, None)
    if inner is not None:
        inner.parent_dropped = True
        finish(run, inner, FrameResult("cancelled", inner.trunk.values), keep=False)
        _requeue(run, token)


def withdraw(run: RunState, questions: Collection[str]) -> None:
    """Withdraw answers from the steps that have them: they ask again, under other ids."""
    withdrawn = frozenset(questions)
    for token in run.live_tokens():
        kept = {name: answer for name, answer in token.answers.items() if name not in withdrawn}
        if len(kept) < len(token.answers):
            token.answers = kept
            token.withdrawn += 1


def edited_tokens(run: RunState, branch: str | None) -> list[Activation]:
    """Return the tokens that an edit applies to: those at the path of a branch, or those outside all branches."""
    if branch is None:
        return [] if run.root is None else [token for token in run.root.live.values() if not token.path]
    return [token for token in run.live_tokens() if token.path == branch]


def _answer_anew(run: RunState, record: r.Forked) -> None:
    if record.answer is None:
        return
    for token in run.live_tokens():
        given = token.answers.get(record.question)
        if given is not None:
            now = structs.replace(given, seq=record.seq, answer=record.answer, by=record.by, policy=False)
            token.answers = {**token.answers, record.question: now}


def _ask_anew(run: RunState, record: r.Forked) -> None:
    """Make open questions the fork's own: an answer for the parent does not fit them, and their time starts again.

    Questions about calls of the parent are asked again by their steps, about the calls of the fork.
    """
    for token in run.live_tokens():
        if token.timers:
            token.timers = {}  # the time left of a parent's timer does not apply here
    for name, question in list(run.questions.items()):
        if name in run.askers and (question.kind == "unknown_outcome" or in_family(question)):
            _withdraw_open(run, name)
            continue
        changes: dict[str, object] = {}
        if name in record.digests:
            changes["digest"] = record.digests[name]
        if question.deadline is not None:
            left = max(0.0, question.deadline - run.asked_at.get(name, record.ts))
            changes["deadline"], run.asked_at[name] = record.ts + left, record.ts
        run.asked[name] = record.ts
        if changes:
            run.questions[name] = question.model_copy(update=changes)


def _withdraw_open(run: RunState, name: str) -> None:
    """Close a question without an answer: its step runs again."""
    del run.questions[name]
    run.asked_at.pop(name, None)
    run.asked.pop(name, None)
    _requeue(run, run.askers.pop(name))


def _requeue(run: RunState, token: Activation) -> None:
    token.phase = Phase.QUEUED
    token.frame.queue.append(token)
    admission.mark(run, token.frame)


def _set_values(token: Activation, record: r.Forked) -> None:
    """Give a token a version with other values: later merges treat it as an update of its branch (R6, R7)."""
    before, schema = token.version, token.frame.plan.schema
    after = token.version = Version(
        schema.apply(before.values, record.update, record.ops),
        parents=(before,),
        key=hash_id(token.key, "forked"),
        node=token.node,
        rank=token.rank,
        update=record.update,
        ops=record.ops,
    )
    if _is_alone(token.frame):
        token.version = Version(after.values, key=after.key, taken=after.taken)
    for item in token.map_items:
        item.versions = [after if version is before else version for version in item.versions]


def _is_alone(frame: FrameState) -> bool:
    """Return True if one token is left, outside all forks, and none has ended: nothing will be merged with it."""
    return len(frame.live) == 1 and not frame.ended_versions and all(not token.forks for token in frame.live.values())
