"""Models, their messages, and layers around them. Importing this loads no provider's package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.models.anthropic import AnthropicModel
    from orchestrator.models.base import Model, ModelEvent, ModelRequest, RequestModel, calling_key, calling_node
    from orchestrator.models.gemini import GeminiModel
    from orchestrator.models.messages import (
        Image,
        Message,
        Reply,
        ToolCall,
        assistant,
        system,
        tool_result,
        user,
        with_results,
    )
    from orchestrator.models.middleware import (
        Ask,
        Cache,
        Cassette,
        Fallback,
        Hook,
        Logged,
        Middleware,
        MiddlewareModel,
        RateLimit,
        with_middleware,
    )
    from orchestrator.models.offline import OfflineModel
    from orchestrator.models.openai import OpenAIModel
    from orchestrator.models.prices import Price
    from orchestrator.models.profile import Profile
    from orchestrator.models.refs import model_from_ref
    from orchestrator.models.text import TextProtocol

_HOMES = {
    "orchestrator.models.anthropic": ("AnthropicModel",),
    "orchestrator.models.gemini": ("GeminiModel",),
    "orchestrator.models.base": ("Model", "ModelEvent", "ModelRequest", "RequestModel", "calling_key", "calling_node"),
    "orchestrator.models.messages": (
        "Image",
        "Message",
        "Reply",
        "ToolCall",
        "assistant",
        "system",
        "tool_result",
        "user",
        "with_results",
    ),
    "orchestrator.models.offline": ("OfflineModel",),
    "orchestrator.models.openai": ("OpenAIModel",),
    "orchestrator.models.prices": ("Price",),
    "orchestrator.models.profile": ("Profile",),
    "orchestrator.models.refs": ("model_from_ref",),
    "orchestrator.models.text": ("TextProtocol",),
    "orchestrator.models.middleware": (
        "Ask",
        "Cache",
        "Cassette",
        "Fallback",
        "Hook",
        "Logged",
        "Middleware",
        "MiddlewareModel",
        "RateLimit",
        "with_middleware",
    ),
}

__all__ = [
    "AnthropicModel",
    "Ask",
    "Cache",
    "Cassette",
    "Fallback",
    "GeminiModel",
    "Hook",
    "Image",
    "Logged",
    "Message",
    "Middleware",
    "MiddlewareModel",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "OfflineModel",
    "OpenAIModel",
    "Price",
    "Profile",
    "RateLimit",
    "Reply",
    "RequestModel",
    "TextProtocol",
    "ToolCall",
    "assistant",
    "calling_key",
    "calling_node",
    "model_from_ref",
    "system",
    "tool_result",
    "user",
    "with_middleware",
    "with_results",
]

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
