"""Which approvals in a run's journal and inbox are believed, where others may have written them."""

from __future__ import annotations

import logging

from orchestrator.executor.call_guard import CallGuard
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel.run_state import RunState
from orchestrator.seals import Audit, Seal, audit
from orchestrator.stores.base import Store
from orchestrator.tools.result import Risk

log = logging.getLogger("orchestrator")


async def audited(store: Store, seal: Seal | None, machine: RunState, *, trust_answers: bool = True) -> Audit | None:
    """Which records of a run are believed; None: all of them."""
    if seal is None and trust_answers:
        return None
    if seal is not None:
        await drop_unsealed(store, seal, machine.run_id, machine)
    return audit(seal, machine.run_id, await store.read(machine.run_id, upto=machine.head))


async def guard_run(store: Store, log: RunLog, checked: Audit | None, ask_from: Risk | None = None) -> None:
    """Withdraw approvals that are not believed when a run is taken up, and guard what it may call.

    Args:
        store: the store of the run.
        log: the run.
        checked: which of its records are believed; None: all.
        ask_from: see `Executor.add_graph`.
    """
    if checked is not None:
        withdraw_unsealed(log, checked)
    if log.machine.in_fork or ask_from is not None:
        await guard_calls(store, log, checked, ask_from)


def withdraw_unsealed(log: RunLog, checked: Audit) -> None:
    """Withdraw approvals without a valid seal when a run is taken up."""
    if not checked.whole:
        log.guard = CallGuard(log.machine.plan.graph, checked)
        withdrawal = checked.withdrawal(log.machine, log.clock.now())
        if withdrawal is not None:
            log.push(withdrawal)


async def guard_calls(store: Store, log: RunLog, checked: Audit | None, ask_from: Risk | None) -> None:
    """Have calls asked about: those of risk, and those approved before a run was forked, which the parent's were.

    Args:
        store: the store of the run.
        log: the run, which may be a fork, or one that a fork called.
        checked: which of its records are believed; None: all.
        ask_from: the risk from which on calls are asked about, whatever the graph says.
    """
    machine = log.machine
    if checked is None:
        records = await store.read(machine.run_id, upto=machine.head)
        checked = Audit(frozenset(record.seq for record in records), None, records)
    since = machine.forked_at if machine.in_fork else 0
    log.guard = CallGuard(machine.plan.graph, checked, since, ask_from=ask_from)


async def drop_unsealed(store: Store, seal: Seal, run_id: str, machine: RunState | None) -> None:
    """Drop the approvals that lay in a run's inbox before it was taken up, if this seal's key did not seal them.

    Who can write a store's file can lay them there; what comes while a run is driven comes from a process that works
    on the same store.

    Args:
        machine: the run; None for one that begins now, and cannot have been answered.
    """
    dropped = []
    for message in await store.inbox([run_id]):
        question = None if machine is None else machine.questions.get(str(message.body.get("question")))
        harmless = message.body.get("type") != "answer" or (question is not None and question.kind == "input")
        if machine is None or not (harmless or seal.sealed_message(run_id, message.body)):
            dropped.append(message.id)
    if dropped:
        log.warning("run %s: %d answers without a valid seal are dropped", run_id, len(dropped))
        await store.discard(dropped)
