"""Why a model stopped, in the words of servers; and replies that cannot be taken as complete."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from orchestrator.models.base import ModelRequest
from orchestrator.models.chat.request import offered_names, wire_names
from orchestrator.models.messages import Reply
from orchestrator.models.profile import Profile
from orchestrator.models.reading import lenient, unfenced

_WORDS = {
    "stop": "stop_sequence stop_token end end_turn endturn end_of_turn endoftext end_of_text eos eos_token complete "
    "completed finish finished done normal stop",
    "tool_calls": "tool_call tool_use function_call tool_calls",
    "length": "max_tokens max_length max_new_tokens max_output_tokens model_length token_limit limit error_limit "
    "incomplete context_length_exceeded model_context_window_exceeded length",
    "content_filter": "content_filtered safety recitation blocklist prohibited_content spii image_safety sensitive "
    "guardrail_intervened error_toxic moderation content_filter",
    "refusal": "refusal",
}
_ENDS = {"": "stop"} | {word: end for end, words in _WORDS.items() for word in words.split()}
_PAUSED = "pause_turn"
"""End of a turn in which a tool of the server takes too long; see
https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons."""
_NO_CALLS = re.compile(r"abort|cancel|error|malformed|unexpected|timeout")
"""Ends after which the tool calls in a reply may be incomplete, too."""
_prefix = re.compile(r"finish_?reason[._]")


def end_of(word: str, profile: Profile) -> str | None:
    """Return the end that a server's word means: a value of `Reply.finish`, or None if it is unknown."""
    known = profile.ends.get(word)
    plain = _prefix.sub("", word.lower()).partition(":")[0]
    return known or _ENDS.get(plain)


def ended(reply: Reply, profile: Profile) -> Reply:
    """Return a reply whose `finish` is a known value, if the server's word has one; `details["finish_reason"]` then
    keeps the word.
    """
    word = reply.finish
    end = end_of(word, profile)
    if reply.tool_calls and (end == "stop" or (end is None and not _NO_CALLS.search(word.lower()))):
        end = "tool_calls"
    if end is None or end == word:
        return reply
    return reply.model_copy(update={"finish": end, "details": {**reply.details, "finish_reason": word}})


def unfinished(reply: Reply, request: ModelRequest, profile: Profile) -> str | None:
    """Return why a reply cannot be taken as complete; None if it can."""
    word = str(reply.details.get("finish_reason", reply.finish))
    if word == _PAUSED and end_of(word, profile) is None and not reply.tool_calls:
        return (
            f"the server paused its own tools ({word}) before the answer was complete, and the library does not "
            "continue such a turn: allow these tools fewer uses (max_uses), ask for less, or use tools of the run"
        )
    known = f'use Profile(ends={{{json.dumps(word, ensure_ascii=False)}: "stop"}})'
    if end_of(word, profile) is None and not reply.tool_calls:
        return (
            f"the server ended the reply with {word!r}, which is not a known end of a complete reply; if it is, {known}"
        )
    if end_of(reply.finish, profile) is None:
        return f"the server ended the reply with {word!r}, so its calls may be incomplete; if they are not, {known}"
    if reply.details.get("finish_reason") == "" and any(call.arguments is None for call in reply.tool_calls):
        return f"the reply ended within the call of {reply.tool_calls[-1].name!r}"
    if reply.tool_calls or reply.finish not in ("stop", "tool_calls"):
        return None
    written = _call_in(reply.text, request)
    if written is not None:
        return (
            f"the text of the reply is a call of {written!r}, which the server did not read: start the server with the "
            "tool parser of this model, or have calls read from the text, by TextProtocol(model) or a strategy's "
            "protocol="
        )
    if reply.finish == "tool_calls":
        return (
            f"the server announced tool calls ({word}), and the reply contains no tool call; if the server also ends "
            f"answers so, {known}"
        )
    return None


# -- calls that stand in the text --------------------------------------------------------------------------------------

_opening = re.compile(
    r"(?<![`\"'“])(?:<tool_call>|<function=|<function_calls>|<invoke |<minimax:tool_call>|\[TOOL_CALLS\]"
    r"|<\|python_tag\|>|<\|tool_call|<｜tool▁call|<\|channel\|>commentary to=|\bfunctools\[|```tool_code\b)"
)
_in_python = re.compile(r"\[\s*([\w.-]+)\(.*\)\s*\]", re.DOTALL)
_MOST_OPENINGS, _NEAR = 5, 300
"""Maximum number of openings that are tried, and of characters between an opening and the tool's name."""


def _call_in(text: str, request: ModelRequest) -> str | None:
    """Return the name of the tool that a text calls, in a form in which models are trained to write calls; None if
    there is no call.

    Quoted text, or a fence with words around it, is an explanation, not a call.
    """
    rest = text.strip()
    if not request.tools or request.output is not None:
        return None
    names = [*offered_names(request), *wire_names(request).values()]
    for opening in islice(_opening.finditer(rest), _MOST_OPENINGS):
        near = rest[opening.end() - 1 : opening.end() + _NEAR]
        found = next((name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", near)), None)
        if found is not None and (rest.startswith("```") or rest.count("```", 0, opening.start()) % 2 == 0):
            return found
    written = rest.removeprefix("Action:").strip()
    if written.startswith(("```", "~~~", "`")) and written.endswith(written[0]):
        written = unfenced(written).strip("`")
    listed = _in_python.fullmatch(written) if written.startswith("[") else None
    if listed is not None:
        return listed[1] if listed[1] in names else None
    if not written.startswith(("{", "[")):
        return None
    try:
        found_calls = lenient.decode(written)
    except (ValueError, RecursionError):
        return None
    called = map(_name_in, found_calls if isinstance(found_calls, list) else [found_calls])
    return next((name for name in called if name in names), None)


def _name_in(written: Any) -> str | None:
    """Return the name in a JSON object that has the fields of a call; None if it has not."""
    if isinstance(written, Mapping) and isinstance(written.get("function"), Mapping):
        written = written["function"]
    if not isinstance(written, Mapping):
        return None
    given = any(isinstance(written.get(key), dict | str) for key in ("arguments", "parameters"))
    name = written.get("name", written.get("tool_name"))
    return name if given and isinstance(name, str) else None
