"""Types of values that nodes write to the state, for states defined as data."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.nodes.code import CodeBlock
from orchestrator.nodes.plans.blueprint import PlannedCall
from orchestrator.nodes.steps import Step
from orchestrator.nodes.window import ContextUsage
from orchestrator.tools.result import ToolResult

STATE_TYPES: Mapping[str, type] = {
    "CodeBlock": CodeBlock,
    "ContextUsage": ContextUsage,
    "PlannedCall": PlannedCall,
    "Step": Step,
    "ToolResult": ToolResult,
}
"""Name in a type text -> the type."""
