"""Records about effects: model and tool calls, what they reserve and what they cost."""

from __future__ import annotations

from msgspec import structs

from orchestrator.graph.limits import Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.ledger import EffectEntry, did_irreversible, place_of
from orchestrator.kernel.pools import reserve
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import FrameState
from orchestrator.kernel.tokens import count_tokens

_NO_USAGE = Usage()
_ONE_CALL = Usage(calls=1)


def effect_intended(run: RunState, record: r.EffectIntended) -> None:
    """Record the intent of an effect, and count a call."""
    if record.effect == "irreversible":
        _count_irreversible(run, record.key, record.activation, may_have_happened=True)
    new = run.ledger.intend(record)
    run.totals.intended(record, _node_of(run, record), new=new)
    if record.reserve is not None:
        reserve(run, record.key, _live_line(run, record.activation), record.reserve)
    if not new or record.kind == "effect":
        return
    run.calls += 1
    for frame in _running_line(run, record.activation):
        frame.calls += 1


def effect_settled(run: RunState, record: r.EffectSettled) -> None:
    """Record how an effect ended, and count its usage."""
    if run.ledger.entry(record.key) is not None:
        _count_irreversible(run, record.key, record.activation, may_have_happened=record.may_have_happened)
        if did_irreversible(record.result):
            for frame in _running_line(run, record.activation):
                frame.irreversible += 1
    run.ledger.settle(record)
    run.totals.settled(record)
    _count_saved(run, record)
    if record.key in run.reserves:
        reserve(run, record.key, _live_line(run, record.activation), None)
    usage = record.usage
    if usage is not None:
        run.longest_reply = max(run.longest_reply, usage.output_tokens)
        run.costliest_call = max(run.costliest_call or 0.0, usage.cost)
        count_tokens(run, usage)
        run.estimated = run.estimated or usage.estimated
        for frame in _running_line(run, record.activation):
            frame.tokens += usage.tokens
            frame.cost += usage.cost


def _count_saved(run: RunState, record: r.EffectSettled) -> None:
    """Count what a replayed call did not cost, because its result came from the replayed run."""
    entry = run.ledger.entry(record.key)
    if entry is None or entry.intended.taken is None or (record.error is not None and record.error.type == "NotMade"):
        return
    # A user's model may report calls, steps or seconds. The kernel counts those itself.
    usage = (record.usage or _NO_USAGE).model_copy(update={"steps": 0, "calls": 0, "seconds": 0.0})
    run.saved += usage if entry.intended.kind == "effect" else usage + _ONE_CALL


def spent(run: RunState, record: r.Spent) -> None:
    """Count what the run started by a call has used since its last such record, and record what it reserves."""
    entry = run.ledger.entry(record.key)
    if entry is None:  # the calling step is over: the inner run no longer shares its usage
        return
    new = record.usage - (entry.inner_usage or _NO_USAGE)
    entry.inner_usage = record.usage
    if entry.intended.taken is not None:
        run.saved += new
    run.calls += new.calls
    count_tokens(run, new)
    run.estimated = run.estimated or new.estimated
    line = _live_line(run, record.activation)
    for frame in line or _running_line(run, record.activation):
        frame.calls += new.calls
        frame.tokens += new.tokens
        frame.cost += new.cost
    reserve(run, record.key, line, record.reserve)


def unmake(run: RunState, entry: EffectEntry) -> None:
    """Remove a call that has not ended, with its counts, as if it had never been intended.

    What a run inside it has spent stays counted.
    """
    intended = entry.intended
    _count_irreversible(run, intended.key, intended.activation, may_have_happened=False)
    run.ledger.drop(intended.key)
    if intended.kind != "effect":
        run.calls -= 1
        for frame in _live_line(run, intended.activation) or _running_line(run, intended.activation):
            frame.calls -= 1


def supersede(run: RunState, key: str, result: object) -> None:
    """Replace the result of a call."""
    entry = run.ledger.entry(key)
    if entry is None or entry.settled is None:
        return
    _count_irreversible(run, key, entry.intended.activation, may_have_happened=True)
    entry.settled = structs.replace(entry.settled, ok=True, result=result, error=None, unknown=False, next_at=None)


def _count_irreversible(run: RunState, key: str, activation: str, *, may_have_happened: bool) -> None:
    """Count an irreversible effect that may have happened, or stop counting one that is now known not to have."""
    known = run.ledger.entry(key)
    if known is not None and known.intended.effect != "irreversible":
        return
    before = known is not None and known.may_have_happened
    if may_have_happened != before:
        for frame in _running_line(run, activation):
            frame.irreversible += 1 if may_have_happened else -1


def _node_of(run: RunState, record: r.EffectIntended) -> str:
    activation = run.running.get(record.activation)
    return record.node if activation is None else place_of(activation)


def _running_line(run: RunState, key: str) -> tuple[FrameState, ...]:
    """Return the graphs around a running activation, innermost first; for any other activation, the run's own graph."""
    activation = run.running.get(key)
    if activation is not None:
        return activation.frame.line
    return (run.root,) if run.root is not None else ()


def _live_line(run: RunState, key: str) -> tuple[FrameState, ...]:
    """Return the graphs around a live activation of any phase, innermost first; none if it is gone."""
    activation = run.activation(key)
    return () if activation is None else activation.frame.line
