"""What servers ask their users: a form, or to open an address in a browser.

The protocol forbids servers to ask for secrets in a form: for these they name an address, which a person opens, and
what is typed there never reaches this program. An address is shown, and never fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import ToolError
from orchestrator.redaction import BLANK, redacted
from orchestrator.tools.mcp.session import REFUSED
from orchestrator.tools.mcp.untrusted import checked_schema, plain, seen, seen_in, without
from orchestrator.tools.validation import BY_NAME, INNER, LISTS, referred

MOST_ROUNDS = 10
LONGEST = 100_000
"""Maximum number of characters of the requests and the state of one round."""
_PROMPT = 4_000
HELD = "held"
"""Name of a request of a server before 2026-07-28, which waits for the answer; see `held`."""
_LONGEST_ADDRESS = 2_000
_OF_PROPERTIES = BY_NAME - {"$defs", "definitions"}
"""Keywords whose value maps names of properties to schemas."""
_OPENED = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "enum": ["accept", "decline", "cancel"],
            "description": "accept: you have opened the page, or will. Only this word is sent and stored",
        }
    },
    "required": ["action"],
    "additionalProperties": False,
}
"""Schema of the answer to an address."""


@dataclass(frozen=True)
class Form:
    """What a server asks its user."""

    prompt: str
    schema: Mapping[str, Any]
    opens: bool = False
    """True if the user is to open an address, instead of filling in a form."""

    def answered(self, value: Any) -> dict[str, Any]:
        """Return the answer in the form of the protocol."""
        return {"action": value["action"]} if self.opens else {"action": "accept", "content": value}


def form_of(request: object, server: str, secrets: tuple[str, ...]) -> Form:
    """Return what a server asks its user by a request.

    Args:
        request: the request.
        server: the server's name.
        secrets: values that are blanked in the prompt and in descriptions of fields.

    Raises:
        ToolError: it is refused.
    """
    said: Mapping[str, Any] = request if isinstance(request, Mapping) else {}
    params = said.get("params")
    form: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    method, mode = said.get("method"), form.get("mode", "form")
    if method != "elicitation/create":
        raise refused(server, REFUSED.get(str(method), f"asks for {plain(str(method))[:100]!r}, which is unknown"))
    message = str(form.get("message", ""))
    if len(message) > LONGEST:
        raise refused(server, "asks for too much input")
    shown = seen(plain(without(message, secrets))).strip()[:_PROMPT]
    if mode == "url":
        address = _address(form.get("url"), server)
        host = urlsplit(address).netloc
        return Form(
            f"MCP server {server!r} asks you to open a page of {host}: {address}\nIt says: {shown}", _OPENED, opens=True
        )
    if mode != "form":
        raise refused(server, f"asks in the mode {plain(str(mode))[:100]!r}, which is unknown")
    try:
        schema = seen_in(checked_schema(form.get("requestedSchema")), secrets)
    except ValueError as error:
        raise refused(server, f"asks with a schema that cannot be used: {error}") from None
    if name := secret_in(schema):
        raise refused(
            server,
            f"asks for {name!r}, a secret, which the protocol forbids in a form: "
            "give it to the server in its environment or headers",
        )
    return Form(f"MCP server {server!r} asks: {shown}", schema)


def secret_in(schema: Mapping[str, Any]) -> str:
    """Return the name of a property that is a secret, at any depth; empty if a schema has none.

    It is one if its name says so, or if a schema that applies to it has `format: password` or `writeOnly: true`.
    """
    todo: list[tuple[str, Any]] = [("", schema)]
    known: set[int] = set()
    while todo:
        name, one = todo.pop()
        if name and redacted({name: "a-value"}) == {name: BLANK}:
            return plain(name)[:100]
        if not isinstance(one, Mapping) or id(one) in known:
            continue
        known.add(id(one))
        if one.get("format") == "password" or one.get("writeOnly") is True:
            return plain(name)[:100] or "a value"
        if "$ref" in one:
            todo.append((name, referred(one["$ref"], schema)))
        for keyword, value in one.items():
            if keyword in INNER:
                todo.append((name, value))
            elif keyword in LISTS and isinstance(value, list):
                todo += ((name, part) for part in value)
            elif keyword in _OF_PROPERTIES and isinstance(value, Mapping):
                todo += value.items()
            elif keyword == "required" and isinstance(value, list):  # it may name what `properties` does not
                todo += ((part, None) for part in value if isinstance(part, str))
    return ""


def _address(url: object, server: str) -> str:
    """Return an address that a person can be shown.

    Raises:
        ToolError: it is none.
    """
    text = url if isinstance(url, str) else ""
    error = refused(server, "asks to open an address that is none of a page: http or https, without a user")
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        raise error from None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise error
    if len(text) > _LONGEST_ADDRESS or not text.isprintable() or " " in text:
        raise error
    if ":" not in host and not all(sign.isalnum() or sign in ".-_" for sign in host):
        # A browser reads another host from `evil.example\.good.example` than a person does.
        raise refused(server, f"asks to open an address whose host is not valid: {host!r}")
    where = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=where if port is None else f"{where}:{port}").geturl()


def refused(server: str, why: str) -> ToolError:
    return ToolError(f"MCP server {server!r} {why}")
