"""Untrusted data of a server: texts, errors, and the tools that it lists with their schemas.

Texts and errors are marked by their origin, bounded and cleaned; tools are bounded and cleaned, or left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.json import digest
from orchestrator.redaction import BLANK, forms_of, redact
from orchestrator.tools.result import in_words
from orchestrator.tools.validation import (
    BY_NAME,
    INNER,
    LISTS,
    NUMBERS,
    for_same_value,
    is_number,
    linear,
    referred,
    schema_faults,
    schemas_in,
)

_MARK = secrets.token_hex(16)
UNREADABLE = -32700
"""Error code for an answer that cannot be read (JSON-RPC's parse error)."""
_KEPT = 8_192
_TOLD_LINES = 12
_TOLD = 1_500
_SHORTEST = 4
"""Minimum length of a secret that is searched for; shorter ones would match everywhere."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSEEN = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff"
    r"\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]++"
)
"""Runs of characters that are invisible to people but read by models: Unicode's Default_Ignorable ones, and Braille's
blank.

Except for the two joiners: Persian and Hindi are written with them, and many emoji."""
_WIDE = re.compile(r"[ \t]{3,}")


def marked(data: object) -> dict[str, object]:
    """Return the `data` of an error that a server sent, with a mark."""
    return {**(data if isinstance(data, dict) else {}), _MARK: True}


def is_marked(data: object) -> bool:
    """Return True if a server sent the error with this `data`."""
    return isinstance(data, dict) and _MARK in data


def messages_in(text: bytes, answers: object = None) -> list[dict[str, Any]]:
    """Return the JSON-RPC messages of a text, each in the form that the protocol requires; empty if there are none.

    What servers write is not always in that form: an error may be a text, a code a text, a result a list, several
    messages one list. A server's errors are marked as its own.

    Args:
        text: what the server wrote.
        answers: id of the request that the answers in the text are for, if that is known: servers write others.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: it is nested too deeply.
    """
    read = json.loads(text.decode("utf-8-sig", "replace"))
    # Halves of surrogate pairs, which cannot be encoded, become question marks.
    read = json.loads(json.dumps(read, ensure_ascii=False).encode("utf-8", "replace"))
    said = read if isinstance(read, list) else [read]
    return [found for one in said if (found := _message_of(one, answers)) is not None]


def _message_of(said: object, answers: object) -> dict[str, Any] | None:
    if not isinstance(said, dict):
        return None
    number, error = said.get("id"), said.get("error")
    if answers is not None and "method" not in said:
        number = answers
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    known = {"id": number} if isinstance(number, int | str) and not isinstance(number, bool) else {}
    found: dict[str, Any] = {"jsonrpc": "2.0", **known}
    if isinstance(said.get("method"), str):
        params = said.get("params")
        return {**found, "method": said["method"], **({"params": params} if isinstance(params, dict) else {})}
    if error is not None:
        words = error if isinstance(error, dict) else {"message": error}
        code, message = words.get("code"), words.get("message")
        if not isinstance(message, str):
            message = json.dumps(error, ensure_ascii=False)
        code = code if isinstance(code, int) and not isinstance(code, bool) else 0
        return {
            **found,
            "id": found.get("id"),
            "error": {"code": code, "message": message, "data": marked(words.get("data"))},
        }
    if "result" not in said or not known:
        return None
    if isinstance(said["result"], dict):
        return {**found, "result": said["result"]}
    return {**found, "error": {"code": UNREADABLE, "message": "its result is not an object"}}


class Tail:
    """Keeps the end of a server's output, and shows it without secrets and control characters."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._kept = b""

    def add(self, said: bytes) -> None:
        """Add output."""
        self._kept = (self._kept + said)[-_KEPT:]

    @property
    def text(self) -> str:
        """Return the last lines; empty if there was no output."""
        # Secrets are removed before the text is cut, else half of one could remain. A secret that starts before the
        # kept part cannot be recognised, so the first line of that part is dropped.
        kept = self._kept.decode("utf-8", "replace")
        if len(self._kept) >= _KEPT:
            kept = kept.partition("\n")[2]
        said = plain(without(kept, self._secrets)).strip()
        lines = [_WIDE.sub("  ", line) for line in said.splitlines() if line.strip()][-_TOLD_LINES:]
        return "\n".join(lines)[-_TOLD:]


def without(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with these secrets, and everything that resembles one, blanked."""
    return redact(exactly_without(text, secrets))


def exactly_without(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with these secrets blanked."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            for form in forms_of(secret):
                text = text.replace(form, BLANK)
    return text


def plain(text: str) -> str:
    """Return the text without control characters, except for line breaks and tabs."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def seen(text: str) -> str:
    """Return the text with each run of invisible characters replaced by its length.

    Reviewers of a description then see what the model receives: text in tag characters is an instruction to models
    alone. A single invisible character, as in emoji, is removed without a note.
    """
    return _UNSEEN.sub(lambda run: "" if len(run[0]) == 1 else f"[{len(run[0])} invisible characters]", text)


TOOLS = 1_000
"""Maximum number of tools of a server."""
_DESCRIPTION = 8_000
"""Characters of a description that a model receives."""
_REFUSED = re.compile(r"[^A-Za-z0-9_.-]")
_TAIL = re.compile(r"_[0-9a-f]{8}\Z")
_LONGEST = 64
"""Maximum length of a name that all model providers accept."""
_BYTES = 100_000
_DEEPEST = 40
_STEPS = 5_000
"""Maximum number of schemas that are visited to check a value, not counting those of its parts."""
_DROPPED = frozenset({"$schema", "$id", "$comment", "title", "examples"})
"""Keywords for people. `title` is dropped as a keyword only, not as the name of a property."""
_NOT_NULL = frozenset({"default", "const", "example"})
"""Keywords whose value may be null."""
_PATTERN = 500


@dataclass(frozen=True)
class Hints:
    """The server's hints about the calls of a tool. They may be mistaken or false."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True)
class Listed:
    """A tool as a server lists it, cleaned."""

    name: str
    """Its name on the server."""
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    hints: Hints
    digest: str = field(repr=False)
    """Digest of the server's whole description, which the person who approved the tool has read."""
    wrapped: bool = False
    """True if its results are objects only to wrap a value: `result` is the one property of their schema."""
    output: Mapping[str, Any] | None = field(default=None, repr=False)
    """JSON Schema of its structured results; for a wrapped result, of the value inside."""
    headers: Mapping[tuple[str, ...], str] = field(default_factory=dict, repr=False)
    """HTTP headers that repeat arguments, by the path of the argument; only of stateless servers."""
    task: str = ""
    """`optional` or `required` if a call can be made as a task, of a server of 2025-11-25; else empty."""


def take(
    tools: object, found: dict[str, Listed], *, stateless: bool, tasks: bool = False, secrets: tuple[str, ...] = ()
) -> list[str]:
    """Add the usable tools of a page to those found before, and return what is wrong with the others.

    Args:
        tools: the page.
        found: the tools found before.
        stateless: whether the server speaks 2026-07-28.
        tasks: whether a server of 2025-11-25 makes tasks of calls.
        secrets: values that are blanked in descriptions, and in what is returned.
    """
    if not isinstance(tools, list):
        return ["a page of its tools is not a list"]
    faults: list[str] = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        try:
            if len(found) >= TOOLS:
                raise ValueError("too many")
            listed = _listed(tool, stateless=stateless, tasks=tasks, secrets=secrets)
            if listed.name in found:
                raise ValueError("it is listed twice")
            found[listed.name] = listed
        except ValueError as error:
            shown = exactly_without(plain(name) if isinstance(name, str) else in_words(tool), secrets)[:200]
            faults.append(f"tool {shown!r} is left out: {exactly_without(str(error), secrets)}")
    return faults


def _listed(tool: object, *, stateless: bool = False, tasks: bool = False, secrets: tuple[str, ...] = ()) -> Listed:
    """Return a tool as it is used.

    Raises:
        ValueError: it cannot be used.
    """
    if not isinstance(tool, dict):
        raise ValueError("it is not an object")
    name, schema, gives = tool.get("name"), tool.get("inputSchema"), tool.get("outputSchema")
    if not isinstance(name, str) or not name or len(name) > 1_000:
        raise ValueError("it has no usable name")
    if schema is None:
        raise ValueError("it has no 'inputSchema'")
    parameters = seen_in(checked_schema(schema), secrets)
    task = _part_of(tool, "execution").get("taskSupport") if not stateless else None
    if task == "required" and not tasks:
        raise ValueError("it can only be called as a task, and the server does not declare tasks")
    said = {name: value for name, value in _part_of(tool, "annotations").items() if value is not None}
    title, described = (
        value if isinstance(value, str) else None for value in (tool.get("title"), tool.get("description"))
    )
    description = seen(plain(exactly_without(described or title or "", secrets))).strip()
    if len(description) > _DESCRIPTION:
        description = description[:_DESCRIPTION] + " [...]"
    parts = [name, title, described, schema, said or None]
    wraps = _wraps(gives)
    headers = _headers_of(schema) if stateless else {}
    as_task = task if tasks and task in ("optional", "required") else ""
    return Listed(name, description, parameters, _hints(said), digest(parts), wraps, _output(gives), headers, as_task)


def _part_of(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = said.get(key)
    return found if isinstance(found, dict) else {}


def _hints(said: Mapping[str, Any]) -> Hints:
    found = (said.get(name) for name in ("readOnlyHint", "destructiveHint", "idempotentHint"))
    return Hints(*(one if isinstance(one, bool) else None for one in found))


def _headers_of(schema: object) -> Mapping[tuple[str, ...], str]:
    """Return the HTTP headers that repeat arguments of a tool, by the path of the argument.

    Raises:
        ValueError: the server names them in a wrong way, for which the protocol requires to leave the tool out.
    """
    from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

    fault = find_invalid_x_mcp_header(schema)
    if fault is not None:
        raise ValueError(f"its 'x-mcp-header' is wrong: {plain(fault)[:200]}")
    return x_mcp_header_map(schema)


def _output(schema: object) -> Mapping[str, Any] | None:
    """Return the schema of results; None if missing or unusable, which does not drop the tool."""
    try:
        found = checked_schema(schema)
    except ValueError:
        return None
    inner = found["properties"]["result"] if _wraps(found) else found
    return {**inner, "$defs": found.get("$defs", {})} if isinstance(inner, dict) else None


def _wraps(schema: object) -> bool:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return isinstance(properties, Mapping) and properties.keys() == {"result"}


def seen_in(schema: dict[str, Any], secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema with invisible characters in its descriptions shown, and these secrets in them blanked; names
    and values are unchanged."""
    return {key: _said_in(key, value, secrets) for key, value in schema.items()}


def _said_in(keyword: str, value: object, secrets: tuple[str, ...]) -> object:
    if keyword == "description" and isinstance(value, str):
        return seen(plain(exactly_without(value, secrets)))
    if keyword in ("default", "const", "enum", "required"):
        return value
    if isinstance(value, dict):
        named = keyword in BY_NAME
        return {
            key: seen_in(one, secrets) if named and isinstance(one, dict) else _said_in(key, one, secrets)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [seen_in(one, secrets) if isinstance(one, dict) else one for one in value]
    return value


def names_of(remote: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return a name that models can call for each name of a server.

    A valid name is unchanged. In others each invalid character becomes `_`, the name is cut to 64 characters, and
    characters of the digest of the original name are appended; these are also appended to a name that already ends
    like that. So the name of a tool does not depend on what else the server lists, and no other tool can take it.
    """
    found: dict[str, str] = {}
    for name in remote:
        short = _REFUSED.sub("_", prefix + name)[:_LONGEST]
        if short != prefix + name or _TAIL.search(short):
            tail = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            short = f"{short[: _LONGEST - 9]}_{tail}"
        found[name] = short
    return found


def checked_schema(schema: object) -> dict[str, Any]:
    """Return the schema of an object, without keywords that are useless to a model.

    A pattern that cannot be matched in linear time is moved to the description of its value: the server checks it.

    Raises:
        ValueError: it is not a valid schema, is too big or too deep, or a check by it might never end.
    """
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (RecursionError, ValueError, TypeError):
        raise ValueError("its schema is nested too deeply, or is not JSON") from None
    if size > _BYTES:
        raise ValueError(f"its schema has {size:,} bytes, and the limit is {_BYTES:,}")
    found = _cleaned(schema, 0)
    if not isinstance(found, dict):
        raise ValueError("its schema is not an object")
    check_answers(found)
    top = _target(found, found)
    if isinstance(top, dict) and top is not found:
        found = {**top, **{name: value for name, value in found.items() if name in ("$defs", "definitions")}}
    if found.setdefault("type", "object") != "object":
        raise ValueError(f"its schema is of type {json.dumps(found['type'])}, but arguments must be an object")
    if "properties" not in found or any(keyword in found for keyword in LISTS):
        found.setdefault("additionalProperties", True)  # properties that it does not name are not refused here
    found.setdefault("properties", {})
    return found


def check_answers(schema: Mapping[str, Any]) -> None:
    """Check a schema that comes from outside, and that values are checked by.

    Raises:
        ValueError: it is not a valid schema, or a check by it might never end.
    """
    for fault in schema_faults(schema, own=False):
        raise ValueError(f"its schema {fault}")
    _check_steps(schema)


def _cleaned(schema: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"its schema is nested more than {_DEEPEST} deep")
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _DROPPED or _is_void(keyword, value):
            continue
        if keyword in BY_NAME and isinstance(value, dict):
            found[keyword] = {name: _cleaned(one, depth + 1) for name, one in value.items()}
        elif keyword in (*LISTS, "items") and isinstance(value, list):
            name = "prefixItems" if keyword == "items" else keyword  # `items` with a list is the older form of it
            found[name] = [_cleaned(one, depth + 1) for one in value]
        elif keyword in INNER:
            found[keyword] = _cleaned(value, depth + 1)
        elif keyword == "pattern" and not (isinstance(value, str) and linear(value)):
            found["description"] = f"{schema.get('description') or ''} (pattern: {str(value)[:_PATTERN]})".strip()
        elif keyword != "description" or "description" not in found:
            found[keyword] = value
    return found


def _is_void(keyword: str, value: object) -> bool:
    """Return True for a keyword without effect, or without one that can be checked here: the server checks it."""
    if value is None:
        return keyword not in _NOT_NULL
    if keyword in NUMBERS:
        return not is_number(value)
    return (keyword == "required" and isinstance(value, bool)) or (keyword in LISTS and value == [])


# -- the time that checks can take ---------------------------------------------------------------------------------


def _check_steps(root: Mapping[str, Any]) -> None:
    """Refuse schemas that refer to themselves for the same value, or fan out too far."""
    known: dict[int, int] = {}
    under_way: set[int] = set()

    def steps(schema: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        name = id(schema)
        if name in under_way:
            raise ValueError("its schema refers to itself in a circle")
        if name not in known:
            under_way.add(name)
            known[name] = min(1 + sum(map(steps, for_same_value(schema, root))), _STEPS + 1)
            under_way.discard(name)
        return known[name]

    for schema in schemas_in(root):
        if steps(schema) > _STEPS:
            raise ValueError("its schema has too many alternatives")


def _target(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the schema that this one refers to, if it has no other effect; circles were refused before."""
    target = referred(schema["$ref"], root) if "$ref" in schema else None
    return _target(target, root) if isinstance(target, dict) else schema
