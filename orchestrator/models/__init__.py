"""Models: what is said to them, and who answers. Importing this loads no provider's package."""

from orchestrator.models.base import Model, ModelEvent, ModelRequest, RequestModel, calling_key, calling_node
from orchestrator.models.messages import Message, Reply, ToolCall, assistant, system, tool_result, user, with_results
from orchestrator.models.offline import OfflineModel
from orchestrator.models.openai import OpenAIModel
from orchestrator.models.refs import model_from_ref

__all__ = [
    "Message",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "OfflineModel",
    "OpenAIModel",
    "Reply",
    "RequestModel",
    "ToolCall",
    "assistant",
    "calling_key",
    "calling_node",
    "model_from_ref",
    "system",
    "tool_result",
    "user",
    "with_results",
]
