"""Tools that models may call, made from functions, methods or classes, and toolboxes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.tools.function import tool
    from orchestrator.tools.pool import Pool, PoolStatistics
    from orchestrator.tools.refs import Registry, ToolLike, ToolsLike, toolbox_of, tools_from_ref
    from orchestrator.tools.result import Blob, Effect, Risk, ToolFailure, ToolResult, risk_at_most
    from orchestrator.tools.schema import IdempotencyKey
    from orchestrator.tools.tool import Tool
    from orchestrator.tools.toolbox import Toolbox, handoff

_HOMES = {
    "orchestrator.tools.refs": ("Registry", "ToolLike", "ToolsLike", "toolbox_of", "tools_from_ref"),
    "orchestrator.tools.function": ("tool",),
    "orchestrator.tools.pool": ("Pool", "PoolStatistics"),
    "orchestrator.tools.result": ("Blob", "Effect", "Risk", "ToolFailure", "ToolResult", "risk_at_most"),
    "orchestrator.tools.schema": ("IdempotencyKey",),
    "orchestrator.tools.tool": ("Tool",),
    "orchestrator.tools.toolbox": ("Toolbox", "handoff"),
}

__all__ = [
    "Blob",
    "Effect",
    "IdempotencyKey",
    "Pool",
    "PoolStatistics",
    "Registry",
    "Risk",
    "Tool",
    "ToolFailure",
    "ToolLike",
    "ToolResult",
    "Toolbox",
    "ToolsLike",
    "handoff",
    "risk_at_most",
    "tool",
    "toolbox_of",
    "tools_from_ref",
]

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
