"""Answers of chat completions, read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from uuid import uuid4

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.graph.limits import Usage
from orchestrator.models.faults import quoted, refusal
from orchestrator.models.messages import Reply, ToolCall

OWN = {"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio"}
"""Fields of an assistant's message that are not a provider's own."""
_UNREADABLE = object()


def reply_of(text: str, model: str, *, clean: Callable[[str], str] = str) -> Reply:
    """The reply in a server's answer.

    Args:
        clean: makes a server's words fit for an error message.

    Raises:
        ModelUnavailable: the answer is cut or holds no reply.
        ModelMisconfigured: it is something else, such as a web page.
    """
    answer = _parsed(text)
    if answer is _UNREADABLE:
        said = clean(quoted(text)) or "nothing"
        if text.lstrip().startswith("<"):
            raise ModelMisconfigured(
                f"model {model!r}: the server answers with a web page; is base_url its API root "
                f"(it often ends in /v1)? It says: {said}"
            )
        raise ModelUnavailable(f"model {model!r}: the server's answer is not JSON: {said}")
    if not isinstance(answer, dict):
        raise ModelUnavailable(f"model {model!r}: the server's answer is no JSON object: {clean(quoted(text))}")
    return reply_from(answer, model, clean=clean)


def reply_from(answer: Mapping[str, Any], model: str, *, clean: Callable[[str], str] = str) -> Reply:
    """The same, of an answer that was read already."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        _without_choices(answer, model, clean)
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ModelUnavailable(f"model {model!r}: the server's answer has a choice without a message")
    calls = tuple(_calls(message.get("tool_calls")))
    content = text_of(message.get("content"))
    refused = message.get("refusal")
    finish = choice.get("finish_reason") or ("tool_calls" if calls else "unknown")
    if not content and isinstance(refused, str) and refused:
        content, finish = refused, "refusal"
    return Reply(
        text=content,
        tool_calls=calls,
        usage=_usage(answer.get("usage")),
        finish=str(finish),
        extras={key: value for key, value in message.items() if key not in OWN and value is not None},
        details={key: value for key, value in answer.items() if key not in ("choices", "object") and value is not None},
        model=str(answer.get("model") or model),
    )


def _parsed(text: str) -> Any:
    """The text as JSON. No error is raised here: it would hold the text, and be the context of ours."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _without_choices(answer: Mapping[str, Any], model: str, clean: Callable[[str], str]) -> NoReturn:
    """Some gateways answer 200 with an error inside."""
    error = answer.get("error")
    if error is None:
        raise ModelUnavailable(
            f"model {model!r}: the server's answer has no choices: {clean(quoted(json.dumps(answer)))}"
        )
    raise error_in(error, model, clean, otherwise=400)


def error_in(error: object, model: str, clean: Callable[[str], str] = str, *, otherwise: int = 500) -> ModelError:
    """The error that stands in the place of an answer, or of a piece of one.

    Args:
        otherwise: the HTTP status that it is taken for, if it does not say.
    """
    told: Mapping[str, Any] = error if isinstance(error, dict) else {"message": error}
    code = told.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else otherwise
    return refusal(model, status, clean(str(told.get("message") or told)), None if code is None else str(code))


def text_of(content: object) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return ""


def _calls(written: object) -> list[ToolCall]:
    found: list[ToolCall] = []
    for call in written if isinstance(written, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        identity = call.get("id")
        if not isinstance(identity, str) or not identity or any(identity == other.id for other in found):
            identity = uuid4().hex  # every call has one result, so every call needs an id of its own
        arguments, raw = read_arguments(function.get("arguments"))
        extras = {key: value for key, value in call.items() if key not in ("id", "type", "function", "index")}
        name = str(function.get("name") or "")
        found.append(ToolCall(id=identity, name=name, arguments=arguments, raw=raw, extras=extras))
    return found


def read_arguments(written: object) -> tuple[dict[str, Any] | None, str]:
    """A call's arguments, and how they were written. None if they are no JSON object; nothing written is `{}`."""
    if written is None or written == "":
        return {}, ""
    if isinstance(written, dict):
        return written, ""
    raw = written if isinstance(written, str) else json.dumps(written)
    try:
        found = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None, raw
    return (found, raw) if isinstance(found, dict) else (None, raw)


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _usage(written: object) -> Usage | None:
    if not isinstance(written, dict):
        return None
    given, made = written.get("prompt_tokens"), written.get("completion_tokens")
    if not isinstance(given, int) and not isinstance(made, int):
        return None
    return Usage(
        input_tokens=given if isinstance(given, int) else 0,
        output_tokens=made if isinstance(made, int) else 0,
    )
