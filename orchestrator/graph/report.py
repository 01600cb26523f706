"""What the checks of a graph found, as data."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.problem import Problem


@dataclass(frozen=True, slots=True)
class Proof:
    """Something that the graph's shape alone decides. `witness` is a way that breaks it, where it does not hold."""

    claim: str
    holds: bool
    witness: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `graph.check()` gives."""

    errors: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """What is legal and often not meant."""
    proofs: tuple[Proof, ...] = ()
    """Only when asked for."""
