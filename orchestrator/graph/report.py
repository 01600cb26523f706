"""The results of a graph's checks, as data."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.problem import Problem


@dataclass(frozen=True, slots=True)
class Proof:
    """A claim that the graph's shape alone decides. If it does not hold, `witness` is a path that breaks it."""

    claim: str
    holds: bool
    witness: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `graph.check()`."""

    errors: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on what is allowed but often unintended."""
    proofs: tuple[Proof, ...] = ()
    """Only when asked for."""
