"""Agent strategies as declarative graphs, run by a checkpointing async executor.

    from orchestrator import Executor, Graph, Outcome, node

Names are loaded when they are first used, so importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import SecretStr as Secret

    from orchestrator.comparison import compare
    from orchestrator.context import Context
    from orchestrator.executor import App, Event, Executor, Run
    from orchestrator.graph import Edge, Node, Outcome, Port, Update, add, append, extend, local, merge, replace, union
    from orchestrator.graph.function import node
    from orchestrator.graph.limits import Limits, LimitsLeft, Retry, Usage
    from orchestrator.graph.versions import Migration
    from orchestrator.kernel.question import AnyQuestion, Approve, Deny, Question, Value
    from orchestrator.memory import Memory, MemoryItem, MemoryOptions
    from orchestrator.models import (
        Image,
        Message,
        Model,
        OfflineModel,
        OpenAIModel,
        Price,
        Profile,
        Reply,
        TextProtocol,
        ToolCall,
        with_middleware,
    )
    from orchestrator.stores import open_store
    from orchestrator.tools import Registry, Tool, Toolbox, ToolResult
    from orchestrator.tools.function import tool
    from orchestrator.tools.handoff import handoff
    from orchestrator.verbs import Graph
    from orchestrator.views.diff import diff

__version__ = "0.1.0"

_HOMES = {
    "orchestrator.comparison": ("compare",),
    "orchestrator.context": ("Context",),
    "orchestrator.executor": ("App", "Event", "Executor", "Run"),
    "orchestrator.graph": (
        "Edge", "Node", "Outcome", "Port", "Update", "add", "append", "extend", "local", "merge", "replace",
        "union",
    ),
    "orchestrator.graph.function": ("node",),
    "orchestrator.graph.limits": ("Limits", "LimitsLeft", "Retry", "Usage"),
    "orchestrator.graph.versions": ("Migration",),
    "orchestrator.kernel.question": ("AnyQuestion", "Approve", "Deny", "Question", "Value"),
    "orchestrator.memory": ("Memory", "MemoryItem", "MemoryOptions"),
    "orchestrator.models": (
        "Image", "Message", "Model", "OfflineModel", "OpenAIModel", "Price", "Profile", "Reply", "TextProtocol",
        "ToolCall", "with_middleware",
    ),
    "orchestrator.stores": ("open_store",),
    "orchestrator.tools": ("Registry", "Tool", "ToolResult", "Toolbox", "handoff", "tool"),
    "orchestrator.verbs": ("Graph",),
    "orchestrator.views.diff": ("diff",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AnyQuestion",
    "App",
    "Approve",
    "Context",
    "Deny",
    "Edge",
    "Event",
    "Executor",
    "Graph",
    "Image",
    "Limits",
    "LimitsLeft",
    "Memory",
    "MemoryItem",
    "MemoryOptions",
    "Message",
    "Migration",
    "Model",
    "Node",
    "OfflineModel",
    "OpenAIModel",
    "Outcome",
    "Port",
    "Price",
    "Profile",
    "Question",
    "Registry",
    "Reply",
    "Retry",
    "Run",
    "Secret",
    "TextProtocol",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Toolbox",
    "Update",
    "Usage",
    "Value",
    "__version__",
    "add",
    "append",
    "compare",
    "diff",
    "extend",
    "handoff",
    "local",
    "merge",
    "node",
    "open_store",
    "replace",
    "tool",
    "union",
    "with_middleware",
]


if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others

    def __getattr__(name: str) -> object:
        if name == "Secret":
            from pydantic import SecretStr

            return SecretStr
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
