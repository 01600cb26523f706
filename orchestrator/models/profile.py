"""The features of one model behind one server, as a few flags."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from orchestrator.graph.faults import Spelled

_REASONING = re.compile(r"\A(o[1-9]|gpt-[5-9](?!-chat))")
_OPENAI = (".openai.com", ".openai.azure.com")
_AZURE = (".azure.com", ".azure.us", ".azure.cn", ".azure-api.net", ".cognitive.microsoft.com")
"""Azure's other hosts: they serve OpenAI's models below `/openai`."""


class Profile(BaseModel, metaclass=Spelled):
    """Features of a model and its server. The defaults suit vLLM, Ollama, llama.cpp, LiteLLM and most others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    strict_tools: bool = False
    """Offer tools as `strict` if their schema allows it: the server then restricts the model to valid arguments."""
    strict_output: bool = False
    """Ask for answers by schemas of OpenAI's strict subset, which has no bounds such as `maxLength`; otherwise bounds
    are sent to the server."""
    tool_choice_required: bool = True
    """True if `tool_choice` may be `required` or name a tool; otherwise it is sent as `auto`."""
    system_role: Literal["system", "developer", "user"] = "system"
    """The role of system messages."""
    parallel_calls: bool = False
    """True if the server accepts `parallel_tool_calls`; otherwise it is left out."""
    output: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    """How to ask for an answer in a schema: by the schema, as any JSON object with the schema in the prompt, or in the
    prompt only. Unless it is set, a model whose server refuses one way goes on with the next."""
    stream_usage: bool = True
    """True if the server accepts `stream_options`, which asks for the usage of a stream."""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the option `max_tokens`."""
    stop: bool = True
    """True if the server accepts the option `stop`; otherwise it is left out."""
    logprobs: NonNegativeInt = 20
    """Maximum number of alternatives to each token, `top_logprobs`, that the server gives with the option `logprobs`; 0
    if it does not accept the option, which is then left out."""
    images: bool = True
    """True if the model accepts pictures from tools; otherwise they are only mentioned."""
    ends: dict[str, Literal["stop", "length", "content_filter"]] = Field(default_factory=dict)
    """The meaning of the server's own words for why a reply ended (`finish_reason`), where it is not known."""
    window: PositiveInt | None = None
    """Tokens of the context window; None: that of the model's name, if it is known (see `OpenAIModel.window`)."""


def reasons(model: str) -> bool:
    """Return True if a model of OpenAI thinks before it answers."""
    return _REASONING.match(model) is not None


def weaker(profile: Profile, flag: str, given: Collection[str]) -> Profile | None:
    """Return the next profile for answers in a schema, after a server refused one because of a flag.

    Args:
        profile: the refused profile.
        flag: see `ModelError.flag`.
        given: the flags that may not be changed.

    Returns:
        The profile; None if there is none.
    """
    if flag == "strict_output" and not profile.strict_output and flag not in given:
        return profile.model_copy(update={"strict_output": True})
    if flag not in ("output", "strict_output") or profile.output == "prompt" or "output" in given:
        return None
    return profile.model_copy(update={"output": "json_object" if profile.output == "json_schema" else "prompt"})


def profile_of(model: str, base_url: str | None) -> Profile:
    """Return the default profile of a model: OpenAI's own servers support more than others.

    Args:
        base_url: None for OpenAI's servers.
    """
    try:
        address = urlsplit(base_url or "https://api.openai.com")
        host = f".{address.hostname or ''}"
    except ValueError:  # not a valid address; the request itself reports it
        return Profile()
    azure = host.endswith(_AZURE) and "openai" in address.path.split("/")
    if not host.endswith(_OPENAI) and not azure:
        return Profile()
    thinks = reasons(model)
    return Profile(
        strict_tools=True,
        strict_output=True,
        parallel_calls=not thinks or model.startswith("gpt"),
        system_role="developer" if thinks else "system",
        max_tokens="max_completion_tokens",
        stop=not thinks,
        logprobs=0 if thinks else 20,
    )
