"""Workers and parked runs as a store has them, for tests of what shows them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from orchestrator.stores.base import Lease
from orchestrator.stores.owner import Owner
from orchestrator.stores.rows import MAX_DEATHS
from tests.web.api import Api

SAID = {"graphs": ["plain"], "slots": 3, "started": 1.5, "version": "1.2.3"}
"""What a worker says of itself."""


def announced(found: Api, name: str, *, ttl: float = 60.0, **given: Any) -> Owner:
    """A worker's row in the store, as a worker on another machine writes it."""
    far = {"host": "far", "machine": "m", "boot": "b", "executor": name, "worker": SAID}
    owner = replace(Owner.here(), **{**far, **given})
    found.portal.call(partial(found.executor.store.announce, owner, ttl=ttl))
    return owner


def announced_dead(found: Api, name: str, **given: Any) -> Owner:
    """A worker's row in the store, as one of this machine left it whose process has ended."""
    here = Owner.here()
    given = {"host": here.host, **given, "machine": here.machine, "boot": here.boot, "pid": 2**22 + 1}
    return announced(found, name, **given)


def held(found: Api, owner: Owner, *run_ids: str, graph: str = "plain") -> None:
    """Runs that this worker holds."""
    for run_id in run_ids:
        found.portal.call(partial(found.executor.enqueue, graph, "bees", run_id=run_id))
        lease = Lease(run_id, f"token of {run_id}", owner.executor, owner.data())
        assert found.portal.call(partial(found.executor.store.take_lease, lease, ttl=60.0))


def parked(found: Api, run_id: str, fault: str = "no model", *, graph: str = "plain", question: str = "bees") -> None:
    """A run whose drives were given up until it is parked."""
    store = found.executor.store
    found.portal.call(partial(found.executor.enqueue, graph, question, run_id=run_id))
    for number in range(MAX_DEATHS):
        assert found.portal.call(partial(store.take_lease, Lease(run_id, f"t{number}", "x"), ttl=60.0))
        found.portal.call(partial(store.drop_lease, run_id, f"t{number}", fault=fault))
