"""What befalls the hosts of a cluster, as data: a plan follows from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "kill", "stop", "down", "silent", "mute", "deaf", "database_kill", "database_down", "database_silent"
]
"""A fault.

- kill: SIGKILL of a worker; another process begins on its host.
- stop: SIGSTOP of a worker, later SIGCONT.
- down: the cable of a worker's host is pulled, and put in again.
- silent: all packets from and to a worker's host vanish for a while.
- mute: packets of a worker to the database vanish; all others arrive, so that it reaches the outside.
- deaf: packets of the database to a worker vanish: what it asks for is done, and it does not learn so.
- database_kill: SIGKILL of all processes of the database, which is started again.
- database_down, database_silent: as of a worker.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_WORKERS = frozenset[Kind](kind for kind in KINDS if not kind.startswith("database"))


@dataclass(frozen=True)
class Fault:
    """One of them."""

    kind: Kind
    victim: int
    """The number of the worker's host; of a fault of the database 0."""
    after: float
    """Seconds of work before it."""
    length: float
    """Seconds until it is healed, for `kill` 0."""


def plan(seed: int, count: int, ttl: float, workers: int = 2) -> list[Fault]:
    """So many faults. All kinds come equally often, and most last longer than a lease.

    Args:
        seed: decides.
        count: how many.
        ttl: seconds that a lease lasts.
        workers: how many hosts have one.
    """
    chance = random.Random(seed)
    found: list[Fault] = []
    while len(found) < count:
        for kind in chance.sample(KINDS, len(KINDS)):
            if kind == "kill":
                length = 0.0
            elif kind == "database_kill":
                length = chance.uniform(0.0, 0.3) * ttl
            else:
                length = ttl * (chance.uniform(0.2, 0.9) if chance.random() < 1 / 3 else chance.uniform(1.2, 1.8))
            victim = chance.randrange(workers) if kind in OF_WORKERS else 0
            found.append(Fault(kind, victim, chance.uniform(0.2, 1.0), length))
    return found[:count]
