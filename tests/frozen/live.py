"""What a watcher of a run that goes on is told: journaled events and live ones, in their order."""

from __future__ import annotations

import anyio

from orchestrator import Executor
from tests.frozen import contract, strategies
from tests.frozen.blanking import compact
from tests.frozen.staging import Piece, alone, still
from tests.frozen.texts import Sections

WATCHED = frozenset({
    "one-node", "loop", "all-calls", "stream", "fork-join", "map", "race", "failed", "failed-star", "retried",
    "timeout", "tool-fails", "ask", "asks-policy", "limit-steps", "inside", "inside-fails", "graph-tool", "essay",
    *(f"{name}-{way}" for name in strategies.MAKERS for way in ("offline", "left", "spent")),
})  # fmt: skip


async def _watched(piece: Piece) -> str:
    options = {"graphs": [piece.graph], **piece.options}
    alone()
    async with Executor(**options) as executor:
        stream = executor.stream(piece.graph, piece.input, run_id=piece.name, **piece.start)
        async with stream as live:
            lines = [compact(event.to_json()) async for event in live]
        return "\n".join([*lines, f"run {live.run.status}"])


def live() -> Sections:
    """The events by run."""
    found = [piece for of in (contract, strategies) for piece in of.pieces() if piece.name in WATCHED]

    async def all_of() -> dict[str, str]:
        return {piece.name: await _watched(piece) for piece in found}

    with still():
        return anyio.run(all_of)
