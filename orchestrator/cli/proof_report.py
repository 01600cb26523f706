"""What `check --prove` prints, writes and draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError

if TYPE_CHECKING:
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.report import Proof, WitnessStep
    from orchestrator.tools import Tool


def tools_for_proofs(refs: Sequence[str] | None) -> Sequence[Tool] | None:
    """The tools of references; None where none are named, so that nothing is known of them."""
    from orchestrator.cli.launch import load_tools
    from orchestrator.cli.listing import known_tools

    return None if not refs else known_tools(load_tools(refs))


def proof_lines(proofs: Sequence[Proof]) -> list[str]:
    """A line for each claim, with its reason and the path that breaks it."""
    from orchestrator.cli.words import line

    found = []
    for proof in proofs:
        tool = f" (graph of tool {proof.tool})" if proof.tool else ""
        found.append(f"  {proof.verdict:<9}  {line(proof.claim + tool)}")
        if proof.reason:
            found.append(f"             {line(proof.reason)}")
        found += [f"             {line(path_text(path))}" for path in (proof.witness, proof.beside) if path]
    return found


def path_text(path: Sequence[WitnessStep]) -> str:
    """A path in one line. Where graphs inside begin is left out: their first nodes say it."""
    return " -> ".join(str(step) for step in path if not step.node.endswith("/START"))


def proof_data(proof: Proof) -> dict[str, object]:
    """A proof as JSON."""
    paths = {
        name: [{"node": step.node, "outcome": step.outcome, "note": step.note} for step in path]
        for name, path in (("witness", proof.witness), ("beside", proof.beside))
    }
    return {
        "about": proof.about,
        "claim": proof.claim,
        "verdict": proof.verdict,
        "reason": proof.reason,
        "tool": proof.tool,
        **paths,
    }


def draw_witness(graph: GraphDefinition, proofs: Sequence[Proof], file: Path, form: str) -> str:
    """Draw the first path that breaks a claim into a file, and return what was done in words."""
    from orchestrator import render
    from orchestrator.views.overlay import witness_overlay

    broken = sorted((proof for proof in proofs if proof.witness), key=lambda proof: proof.verdict != "refuted")
    own = [proof for proof in broken if not proof.tool]
    if not own:
        return "no path breaks a claim, so nothing was drawn"
    if form in ("html", "yaml"):
        raise UsageError(f"{form} cannot show a path: use the suffix .svg, .png, .dot, .mmd or .txt")
    made = render.render(graph, form, witness_overlay(graph, own[0]))
    file.write_bytes(made if isinstance(made, bytes) else made.rstrip("\n").encode() + b"\n")
    return f"wrote {file}: {own[0].verdict}, {own[0].claim}"
