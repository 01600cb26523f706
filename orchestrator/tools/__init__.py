"""What models may call: tools, made of functions, methods or classes, and toolboxes of them."""

from orchestrator.tools.collect import ToolLike, ToolsLike, toolbox_of
from orchestrator.tools.content import Blob
from orchestrator.tools.function import tool
from orchestrator.tools.handoff import handoff
from orchestrator.tools.pool import Pool, PoolStatistics
from orchestrator.tools.refs import tools_from_ref
from orchestrator.tools.registry import Registry
from orchestrator.tools.result import Effect, Risk, ToolFailure, ToolResult, risk_at_most
from orchestrator.tools.schema import IdempotencyKey
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

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
