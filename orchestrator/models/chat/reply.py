"""Reads answers of chat completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any
from uuid import uuid4

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.graph.limits import Usage
from orchestrator.json import deeper_than
from orchestrator.models.base import ModelRequest
from orchestrator.models.chat.ends import ended
from orchestrator.models.chat.request import WRAP, is_object, wire_names
from orchestrator.models.http_errors import OPENAI_KEY, quoted, refusal, status_of, words_in, words_of
from orchestrator.models.logprobs import token_logprobs
from orchestrator.models.messages import Reply, ToolCall, without_thoughts
from orchestrator.models.profile import Profile
from orchestrator.models.reading import NoReading, json_in, lenient, one_reading, unfenced
from orchestrator.models.strict import without_nulls
from orchestrator.values import FOREIGN_DEPTH, MAX_TOKENS

OWN = {"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio"}
"""Fields of an assistant's message that are not specific to a provider."""
_ABSENT = ("null", "None")
"""What some servers write for no `finish_reason`."""
UNREADABLE = object()
_NO_ARGUMENTS = ("", "null", "None", "[]")
_DEEPEST = FOREIGN_DEPTH
"""Maximum depth of JSON that is kept: deeper values can be stored by few stores."""


def reply_of(
    text: str, model: str, *, clean: Callable[[str], str] = str, read: Callable[..., Reply] | None = None
) -> Reply:
    """Return the reply in a server's answer.

    Args:
        clean: makes a server's text safe for an error message.
        read: reads the parsed answer, like `reply_from`, which is the default.

    Raises:
        ModelUnavailable: the answer is cut or contains no reply.
        ModelMisconfigured: it is something else, such as a web page.
    """
    answer = parsed(text)
    if answer is UNREADABLE:
        said = clean(quoted(words_of(text, 0)[0])) if text.strip() else "nothing"
        if text.lstrip().startswith("<"):
            raise ModelMisconfigured(
                f"model {model!r}: the server answers with a web page; is base_url its API root "
                f"(it often ends in /v1)? It says: {said}"
            )
        raise ModelUnavailable(f"model {model!r}: the server's answer is not JSON: {said}")
    if isinstance(answer, list) and len(answer) == 1:  # how Gemini sends errors
        answer = answer[0]
    if not isinstance(answer, dict):
        raise ModelUnavailable(f"model {model!r}: the server's answer is not a JSON object: {clean(quoted(text))}")
    return (read or reply_from)(answer, model, clean=clean)


def reply_from(answer: Mapping[str, Any], model: str, *, clean: Callable[[str], str] = str) -> Reply:
    """Like `reply_of`, for an answer that is already parsed."""
    choices = answer.get("choices")
    there = isinstance(choices, list) and choices and isinstance(choices[0], dict)
    choice: Mapping[str, Any] = choices[0] if there and choices is not None else {}
    error = error_of(answer) or choice.get("error")
    if error:  # some gateways send it with status 200
        raise error_in(error, model, clean, otherwise=400)
    if not there:
        said = clean(quoted(json.dumps(answer)))
        raise ModelUnavailable(f"model {model!r}: the server's answer has no choices: {said}")
    message = choice.get("message") or choice.get("delta")  # a proxy sent the reply in one piece
    if not isinstance(message, dict):
        raise ModelUnavailable(f"model {model!r}: the server's answer has a choice without a message")
    calls = tuple(_calls(message.get("tool_calls"))) or tuple(_calls([{"function": message.get("function_call")}]))
    content = text_of(message.get("content"))
    refused = message.get("refusal")
    finish = word_in(choice.get("finish_reason"))
    if not content and isinstance(refused, str) and refused:
        content, finish = refused, "refusal"
    return without_thoughts(  # the journal alters a reply that it cannot keep
        Reply(
            text=content,
            tool_calls=calls,
            usage=usage_of(answer.get("usage")),
            finish="" if finish in _ABSENT else finish,
            extras=_kept(message, OWN),
            details=_kept(answer, ("choices", "object", "logprobs")) | _logprobs(choice),
            model=str(answer.get("model") or model),
        )
    )


def word_in(finish: object) -> str:
    """Return the word in a `finish_reason`, which some servers write as an object or a list; empty if there is none."""
    if isinstance(finish, Mapping):
        finish = next((finish[key] for key in ("type", "reason", "finish_reason") if key in finish), "")
    elif isinstance(finish, list):
        finish = finish[-1] if finish else ""
    return finish if isinstance(finish, str) else str(finish) if isinstance(finish, int) else ""


def _logprobs(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log probabilities of a reply's tokens, for `Reply.details`."""
    found = token_logprobs(choice.get("logprobs"))
    return {"logprobs": [[*token] for token in found]} if found else {}


def parsed(text: str) -> Any:
    """Parse a text as JSON, with NaN and infinite numbers as None; return `UNREADABLE` if it is not JSON.

    No error is raised here: it would contain the text, and become the context of the error raised later.
    """
    try:
        return _LENIENT.decode(text)
    except (ValueError, RecursionError):
        return UNREADABLE


def _nothing(constant: str) -> None:
    return None


def _finite(digits: str) -> float | None:
    found = float(digits)
    return found if isfinite(found) else None


_LENIENT = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)
"""Made once: `json.loads` with these options makes a decoder for each chunk of a stream."""


def _kept(fields: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    """Return the fields that are specific to a provider, unchanged."""
    return {
        key: value
        for key, value in fields.items()
        if key not in without and value is not None and not deeper_than(value, _DEEPEST)
    }


def error_of(answer: Mapping[str, Any]) -> Any:
    """Return the part of an answer, or of a piece of one, that describes an error; None if there is none."""
    if "choices" in answer or answer.get("error"):
        return answer.get("error")
    if "error" in (answer.get("object"), answer.get("type")):
        return answer
    return answer.get("errors")


def error_in(
    error: object, model: str, clean: Callable[[str], str] = str, *, otherwise: int = 500, key: str = OPENAI_KEY
) -> ModelError:
    """Return the error that a server sent instead of a reply, or of a piece of one.

    Args:
        otherwise: the HTTP status to assume if it names none.
        key: the environment variable with the key.
    """
    words, names = words_in(error)
    status = next((found for name in names if (found := status_of(name)) is not None), None)
    return refusal(
        model, otherwise if status is None else status, clean(words), names, named=status is not None, key=key
    )


def chunk_of(data: str, model: str, clean: Callable[[str], str] = str, *, key: str = OPENAI_KEY) -> Mapping[str, Any]:
    """Parse the data of an event as a chunk. `key`: the environment variable with the key.

    Raises:
        ModelError: it is an error of the server, or no chunk.
    """
    chunk = parsed(data)
    if isinstance(chunk, list) and len(chunk) == 1:
        chunk = chunk[0]
    if not isinstance(chunk, dict):
        said = clean(quoted(data))
        raise ModelUnavailable(
            f"model {model!r}: the server's stream cannot be read (a part of it is not a JSON object: {said})"
        )
    if "choices" in chunk:
        error = chunk.get("error")
    else:
        worded = chunk.get("detail") or isinstance(chunk.get("message") or chunk.get("msg"), str)
        error = error_of(chunk) or (chunk if worded else None)
    if error:
        raise error_in(error, model, clean, key=key)
    return chunk


def text_of(content: object) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return ""


def _calls(written: object) -> list[ToolCall]:
    found: list[ToolCall] = []
    known: set[str] = set()
    for call in written if isinstance(written, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        identity = call.get("id")
        if not isinstance(identity, str) or not identity or identity in known:
            identity = uuid4().hex  # every call has one result, so every call needs its own id
        known.add(identity)
        arguments, raw = read_arguments(function.get("arguments"))
        name = str(function.get("name") or "")
        extras = _kept(call, ("id", "type", "function", "index"))
        found.append(ToolCall(id=identity, name=name, arguments=arguments, raw=raw, extras=extras))
    return found


def read_arguments(written: object) -> tuple[dict[str, Any] | None, str]:
    """Return a call's arguments, and their text if it is a JSON object.

    A dialect of JSON is read if it has one meaning: line breaks and tabs within a text, an object that is encoded twice
    or stands in a Markdown fence. An empty text, `null` and `[]` mean `{}`. Other arguments are None, with their text.
    """
    if isinstance(written, dict) and not deeper_than(written, _DEEPEST):
        return written, ""
    if written is None or written == [] or (isinstance(written, str) and written.strip() in _NO_ARGUMENTS):
        return {}, ""
    try:
        raw = written if isinstance(written, str) else json.dumps(written)
    except (ValueError, RecursionError):
        return None, "(nested too deeply)"
    found = _object(raw, strict=True)
    if found is not None:
        return found, raw
    found = _object(unfenced(raw), strict=False)
    return found, raw if found is None else ""


def _object(text: str, *, strict: bool) -> dict[str, Any] | None:
    try:
        found = (one_reading if strict else lenient).decode(text)
        if isinstance(found, str) and not strict:
            found = lenient.decode(found)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and not deeper_than(found, _DEEPEST) else None


def count_in(written: object) -> int | None:
    """Return a number of tokens; None if it is missing or implausible."""
    if isinstance(written, float) and written.is_integer():
        written = int(written)
    return written if type(written) is int and 0 <= written < MAX_TOKENS else None


def usage_of(written: object) -> Usage | None:
    """Return the usage in an answer; None if a count is missing."""
    given, made = counts(written)
    # If a count is missing or implausible, `approximated` estimates it.
    if given is None or made is None:
        return None
    return Usage(input_tokens=given, output_tokens=made, **cache_counts(written))


def cache_counts(written: object) -> dict[str, int]:
    """Return the input tokens that were read from and written to the provider's cache, as fields of `Usage`."""
    fields = written if isinstance(written, dict) else {}
    details = fields.get("prompt_tokens_details", fields.get("input_tokens_details"))
    inside = details if isinstance(details, dict) else {}
    read = (inside.get("cached_tokens"), fields.get("prompt_cache_hit_tokens"), fields.get("cache_read_input_tokens"))
    kept = (inside.get("cache_write_tokens"), fields.get("cache_creation_input_tokens"))
    found = {"cached_tokens": read, "written_tokens": kept}
    return {name: count for name, given in found.items() if (count := next(filter(None, map(count_in, given)), 0))}


def counts(written: object) -> tuple[int | None, int | None]:
    """Return input and output tokens of an answer's `usage`, each None if it is missing."""
    if not isinstance(written, dict):
        return None, None
    given, made = (written.get(old, written.get(new)) for old, new in _COUNTS)
    return count_in(given), count_in(made)


_COUNTS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
"""Names of the counts in chat completions, and in the interfaces that followed."""


# -- replies to requests that had to be sent in another form ---------------------------------------------------------


def understood(reply: Reply, request: ModelRequest, profile: Profile) -> Reply:
    """Convert a reply to the form that was requested, if `body_of` had to ask for another one.

    Also convert its finish reason to a known one.
    """
    reply = ended(named_back(reply, request), profile)
    if reply.tool_calls and profile.strict_tools:
        schemas = {tool["function"]["name"]: tool["function"] for tool in map(_told, request.tools)}
        calls = [_loosened(call, schemas.get(call.name, {}).get("parameters")) for call in reply.tool_calls]
        return reply.model_copy(update={"tool_calls": tuple(calls)})
    if request.output is None or reply.tool_calls or is_object(request.output):
        return reply
    try:
        found = json_in(reply.text)
    except NoReading:
        return reply
    if not isinstance(found, dict) or found.keys() != {WRAP}:
        return reply
    return reply.model_copy(update={"text": json.dumps(found[WRAP], ensure_ascii=False)})


def _told(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    return {"function": function if isinstance(function, Mapping) and "name" in function else {"name": ""}}


def _loosened(call: ToolCall, parameters: object) -> ToolCall:
    if call.arguments is None or not isinstance(parameters, Mapping):
        return call
    found = without_nulls(call.arguments, parameters)
    return call if found == call.arguments else call.model_copy(update={"arguments": found})


def named_back(reply: Reply, request: ModelRequest) -> Reply:
    """Return a reply whose calls have the tools' original names."""
    back = {safe: name for name, safe in wire_names(request).items()} if reply.tool_calls else {}
    if not any(call.name in back for call in reply.tool_calls):
        return reply
    calls = [call.model_copy(update={"name": back.get(call.name, call.name)}) for call in reply.tool_calls]
    return reply.model_copy(update={"tool_calls": tuple(calls)})
