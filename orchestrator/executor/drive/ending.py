"""The end of a run: what it left under way is settled, its result checked, and the last record journaled."""

from __future__ import annotations

from orchestrator.errors import InvalidUpdate
from orchestrator.executor.effects.limits import child_id, old_child_id, total_up
from orchestrator.executor.resources import Children
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel.records import EffectIntended, EffectSettled, Ended, Failure
from orchestrator.values import Unfit


async def end_if_over(log: RunLog, children: Children) -> None:
    """Journal the end of the run, when nothing is left to do but that."""
    machine = log.machine
    result = machine.result
    if result is None or machine.ended is not None or machine.is_held:
        return
    await _end_abandoned_runs(log, children)
    _settle_abandoned(log)
    schema = machine.plan.schema
    status, error = result.status, result.error
    if status == "completed":
        try:
            schema.check(result.values)
        except InvalidUpdate as fault:
            status, error = "failed", Failure(type="InvalidUpdate", message=str(fault))
    output, reduced = None, None
    try:
        if status in ("completed", "exhausted") and machine.plan.graph is not None:
            graph = machine.plan.graph
            names = graph.output_fields
            output = graph.result(schema.dump({name: one for name, one in result.values.items() if name in names}))
        reduced = schema.reduced(result.values, schema.fields, checked=False)
    except (InvalidUpdate, Unfit):  # what a merge made cannot be stored; a run that did not complete ends without it
        pass
    # Validated, where the kernel's own records are not: a result may have been built from values of any class.
    log.put(Ended.model_validate({**log.now(), "status": status, "output": output, "error": error, "reduced": reduced}))


def _abandoned(log: RunLog) -> list[EffectIntended]:
    """Every effect without an end that no step waits for any more."""
    entries = log.machine.ledger.entries()
    return [one.intended for one in entries if one.settled is None or one.settled.seq < one.intended.seq]


async def _end_abandoned_runs(log: RunLog, children: Children) -> None:
    """Cancel the runs of graphs that were called as tools and were left behind.

    Those were left while they asked something, or when a process died: there was no step that could cancel them.
    """
    for intended in _abandoned(log):
        if intended.kind == "tool" and intended.effect == "idempotent":
            for run_id in (child_id(log.run_id, intended.key), old_child_id(log.run_id, intended.key)):
                total_up(log, intended.key, await children.cancel(run_id))


def _settle_abandoned(log: RunLog) -> None:
    """Journal an end for abandoned effects."""
    for intended in _abandoned(log):
        error = Failure(
            type="Cancelled", message="cancelled while it was under way", node=intended.node, path=intended.path
        )
        stamp = log.of(intended)
        key, began, unknown = intended.key, intended.ts, intended.effect == "irreversible"
        log.put(
            EffectSettled(**stamp, key=key, ok=False, error=error, started=began, ended=stamp["ts"], unknown=unknown)
        )
