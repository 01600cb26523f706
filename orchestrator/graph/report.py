"""The results of a graph's checks, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.errors import Problem

Verdict: TypeAlias = Literal["proved", "refuted", "undecided"]
"""`undecided`: something that the claim depends on is not declared; the proof's reason names it."""
Claim: TypeAlias = Literal["confirmed", "guarded", "bounded", "joins", "ends", "writes"]
"""The subject of a proof: calls that change something, text from outside that leads to such calls, cycles, joins, ends,
or updates of parallel branches."""


@dataclass(frozen=True, slots=True)
class WitnessStep:
    """A step of a path: a node and its outcome."""

    node: str
    """Its name; inside subgraphs after the names of the enclosing nodes, `call/execute`."""
    outcome: str = ""
    """The outcome; empty if the path continues before the node ends, or ends here."""
    note: str = ""
    """A further condition for this path: an empty list, a spent limit."""

    def __str__(self) -> str:
        said = ", ".join(filter(None, ("" if self.outcome == "done" else self.outcome, self.note)))
        return f"{self.node} ({said})" if said else self.node


@dataclass(frozen=True, slots=True)
class Proof:
    """A claim about all runs of a graph, and whether it holds."""

    about: Claim
    claim: str
    verdict: Verdict
    reason: str = ""
    """Why the claim is true, how it is broken, or what is not known."""
    witness: tuple[WitnessStep, ...] = ()
    """A path from START that breaks the claim, or may break it if the claim is undecided."""
    beside: tuple[WitnessStep, ...] = ()
    """The path of a second branch, if breaking the claim takes two."""
    tool: str = ""
    """The tool whose graph the claim is about; empty for the graph itself."""

    @property
    def holds(self) -> bool:
        """True if the claim is proved."""
        return self.verdict == "proved"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `graph.check()`."""

    errors: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on parts that are allowed but often unintended."""
    proofs: tuple[Proof, ...] = ()
    """The proofs, if they were requested."""
