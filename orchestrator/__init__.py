"""Agent strategies as declarative graphs, run by a checkpointing async executor.

    from orchestrator import Executor, Graph, Outcome, node

Names are loaded when they are first used, so importing this package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.comparison import compare
    from orchestrator.context import Context
    from orchestrator.evaluation import evaluate
    from orchestrator.executor import App, Executor, Run
    from orchestrator.graph import Outcome, Update, add, append, extend, local, merge, replace, union
    from orchestrator.graph.function import node
    from orchestrator.graph.limits import Limits, Retry
    from orchestrator.graph_class import Graph
    from orchestrator.kernel.question import AnyQuestion, Approve, Deny, Question, Value
    from orchestrator.memory import MemoryOptions
    from orchestrator.models import Image, Message, Model, OfflineModel, OpenAIModel, Reply, ToolCall
    from orchestrator.tools import Registry, Tool, Toolbox, ToolResult
    from orchestrator.tools.function import tool
    from orchestrator.tools.toolbox import handoff
    from orchestrator.views.diff import diff

__version__ = "0.1.0"

_HOMES = {
    "orchestrator.comparison": ("compare",),
    "orchestrator.context": ("Context",),
    "orchestrator.evaluation": ("evaluate",),
    "orchestrator.executor": ("App", "Executor", "Run"),
    "orchestrator.graph": ("Outcome", "Update", "add", "append", "extend", "local", "merge", "replace", "union"),
    "orchestrator.graph.function": ("node",),
    "orchestrator.graph.limits": ("Limits", "Retry"),
    "orchestrator.kernel.question": ("AnyQuestion", "Approve", "Deny", "Question", "Value"),
    "orchestrator.memory": ("MemoryOptions",),
    "orchestrator.models": ("Image", "Message", "Model", "OfflineModel", "OpenAIModel", "Reply", "ToolCall"),
    "orchestrator.tools": ("Registry", "Tool", "ToolResult", "Toolbox", "handoff", "tool"),
    "orchestrator.graph_class": ("Graph",),
    "orchestrator.views.diff": ("diff",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AnyQuestion",
    "App",
    "Approve",
    "Context",
    "Deny",
    "Executor",
    "Graph",
    "Image",
    "Limits",
    "MemoryOptions",
    "Message",
    "Model",
    "OfflineModel",
    "OpenAIModel",
    "Outcome",
    "Question",
    "Registry",
    "Reply",
    "Retry",
    "Run",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Toolbox",
    "Update",
    "Value",
    "__version__",
    "add",
    "append",
    "compare",
    "diff",
    "evaluate",
    "extend",
    "handoff",
    "local",
    "merge",
    "node",
    "replace",
    "tool",
    "union",
]


if not TYPE_CHECKING:  # type checkers know these names from the imports above and report all others

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
