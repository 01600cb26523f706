"""The node kinds that ship, and what their code says of them."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import orchestrator.nodes as nodes
from orchestrator.graph import Node
from orchestrator.graph.model import is_shipped
from orchestrator.nodes.catalog import (
    FieldFacts,
    chosen_outcomes,
    common_fields,
    description,
    failures,
    own_fields,
    summary,
)

__all__ = [
    "FieldFacts", "chosen_outcomes", "common_fields", "description", "failures", "own_fields", "shipped", "summary",
]  # fmt: skip
_NOT_IN_GRAPHS = ("node", "function", "unresolved")
"""The base class, nodes of `@node`, and what stands for nodes without their code."""


def shipped() -> dict[str, type[Node]]:
    """Every shipped kind by its name, whichever file it is in."""
    for module in pkgutil.iter_modules(nodes.__path__):  # importing a kind registers it
        import_module(f"{nodes.__name__}.{module.name}")
    found = {kind: cls for kind, cls in Node.kinds.items() if is_shipped(cls) and kind not in _NOT_IN_GRAPHS}
    return {kind: found[kind] for kind in sorted(found)}
