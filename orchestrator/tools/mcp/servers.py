"""Servers and how to reach them: a command or an address, read from text and from `.mcp.json` files.

Runs store references to their tools as text, which must not contain secrets: `${NAME}` is kept in the text, and looked
up in the environment when the server is connected.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from orchestrator.errors import GraphUnknown
from orchestrator.redaction import BLANK, redact, redacted
from orchestrator.tools.mcp.variables import VARIABLE, Variables
from orchestrator.values import read_bounded
from orchestrator.visible import narrow

log = logging.getLogger("orchestrator")

PREFIX = "mcp:"
"""Prefix of a reference to a server."""
MOST_BYTES = 1_000_000
"""Maximum number of bytes of a file of servers."""
_LONGEST = 10_000
"""Maximum number of characters of a reference."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_HTTP = ("http", "https", "streamable-http", "streamable_http", "streamableHttp", "remote")
_STDIO = ("stdio", "local")
_OTHER_NAMES = {"serverUrl": "url", "httpUrl": "url", "environment": "env"}
"""Names of keys at Windsurf, Gemini CLI and OpenCode, and the usual ones."""
_OF_OPENCODE = re.compile(r"(?<!\$)\{(?=(?:env|file):)")
"""Start of a variable in OpenCode's form: `{env:NAME}`, `{file:PATH}`."""
_SWITCHES = ("disabled", "enabled", "resources", "prompts")
_KEYS = frozenset(("type", "transport", "name", "description", *_SWITCHES))
_HTTP_KEYS = frozenset(("url", "headers"))
_STDIO_KEYS = frozenset(("command", "args", "env", "envFile", "cwd"))
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?')
_TRAILING_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|,(?=\s*+[}\]])')
_SECRET = frozenset(
    (
        "apikey",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "credential",
        "credentials",
        "key",
        "pass",
        "passphrase",
        "passwd",
        "password",
        "pat",
        "pw",
        "pwd",
        "secret",
        "sig",
        "signature",
        "token",
    )
)
_ABOUT_ONE = frozenset(
    ("count", "dir", "env", "file", "header", "id", "length", "limit", "name", "path", "size", "type", "url", "var")
)
"""Last words of names that describe a secret without containing it: `--token-file`."""
_ASSIGNED = re.compile(r"-{0,2}([A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_HEADER = re.compile(r"([A-Za-z][\w.-]*):\s+(.+)", re.DOTALL)
_SHORT = ("-k",)
_USER = re.compile(r"(-[uU]|--(?:proxy-)?user(?:name|pwd)?|--login)(?:=|(?<=-[uU]))?(.*)", re.DOTALL)
_PAIR = re.compile(r"([^:/]*):([^/].*)", re.DOTALL)
_AT_HOST = re.compile(
    r"[^\s:/@]*:[^\s:/@]+@(?:localhost|[A-Za-z][\w-]*(?:\.[\w-]+)+|\d+(?:\.\d+){3})(?:[:/].*)?", re.DOTALL
)
_SCHEMES = ("bearer", "basic", "token")
_DEEPEST = 3


@dataclass(frozen=True)
class StdioServer:
    """A server that is a program, started here and used over its standard input and output.

    Args:
        command: the program, searched on PATH.
        args: its arguments.
        env: added to the few variables that a server always gets (PATH, HOME and the like).
        cwd: its working directory.
        name: its name in messages; by default the program's.
        typed: secrets that the user typed, and that are part of the other fields.
        offers: `resources` and `prompts`, if these are to be offered as tools.
    """

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    name: str = ""
    typed: tuple[str, ...] = field(default=(), repr=False)
    offers: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.command).name or self.command)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values that must not be shown."""
        return (*self.env.values(), *self.typed)


@dataclass(frozen=True)
class HttpServer:
    """A server at an address, used over streamable HTTP.

    Args:
        url: its address, `http://` or `https://`.
        headers: sent with each request, such as `Authorization`.
        name: its name in messages; by default its host.
        typed: secrets that the user typed, and that are part of the other fields.
        offers: `resources` and `prompts`, if these are to be offered as tools.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = ""
    typed: tuple[str, ...] = field(default=(), repr=False)
    offers: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            host = self.url.partition("://")[2].partition("/")[0].rpartition("@")[2]
            object.__setattr__(self, "name", host or "http")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values that must not be shown."""
        tokens = [part for value in self.headers.values() for part in (value, value.rpartition(" ")[2])]
        rest = self.url.partition("://")[2]
        user = rest.partition("/")[0].rpartition("@")[0].partition(":")[2]
        query = rest.partition("?")[2]
        return (*tokens, *self.typed, *_SENT.get(self.url, ()), *(part for part in (user, query) if part))


Server: TypeAlias = StdioServer | HttpServer
_SENT: dict[str, tuple[str, ...]] = {}
"""Address of a server -> the last tokens that this process sent to it."""


def sends(url: str, token: str) -> None:
    """Register a token that is sent to a server: it is one of the server's `secrets` from now on."""
    if token not in (known := _SENT.get(url, ())):
        _SENT[url] = (*known[-3:], token)


def hidden(server: Server) -> tuple[str, ...]:
    """Return the secrets that are blanked in all texts of the server: headers, and variables whose names suggest
    secrets."""
    if isinstance(server, HttpServer):
        found = server.secrets
    else:
        found = tuple(value for name, value in server.env.items() if redacted({name: value}) == {name: BLANK})
        found += server.typed
    return found


def servers_of(text: str, directory: str | None = None) -> list[Server]:
    """Return the servers that a reference names.

    Args:
        text: `http://...` or `https://...`; the path of a JSON file such as `.mcp.json` (all of its servers), or with
            `#NAME` one of them; else a command with its arguments as a shell would split them, optionally after
            `NAME=${NAME}` to pass on variables of the environment. The prefix `mcp:` is optional.
        directory: base of relative paths and commands; by default the current directory.

    Raises:
        GraphUnknown: it cannot be read, a variable is not set, or the text contains a secret.
    """
    text = text.removeprefix(PREFIX).strip()
    if not text:
        raise GraphUnknown("tools 'mcp:': name a server: mcp:COMMAND ARGS, mcp:http://... or mcp:.mcp.json")
    refuse_secrets(text)
    if text.startswith(("http://", "https://")):
        return [HttpServer(Variables().expanded(text, f"tools {PREFIX}{text}"))]
    file, _, name = text.partition("#")
    if is_file(text):
        return servers_in(Path(directory or ".") / file, name or None)
    return [_of_command(text, directory)]


def is_file(text: str) -> bool:
    """Return whether a reference (without its `mcp:` prefix) names a JSON file rather than a command."""
    file = text.partition("#")[0]
    return file.endswith((".json", ".jsonc")) and (len(file.split()) == 1 or Path(file).is_file())


def refuse_secrets(text: str) -> None:
    """Refuse a reference that is too long or seems to contain a secret.

    Raises:
        GraphUnknown: the reference seems to contain a secret, which would be stored; or it is too long.
    """
    if len(text) > _LONGEST:
        raise GraphUnknown(
            f"tools {PREFIX}...: it has {len(text):,} characters, and the limit for references is {_LONGEST:,}: "
            "use a .mcp.json file"
        )
    holder = secret_written_in(text)
    if holder is not None:
        which = f"{PREFIX}{redact(text)}: it" if holder == "it" else f"{PREFIX}...: {holder}"
        raise GraphUnknown(
            f"tools {which} contains a secret, and references are stored with a run: "
            "write ${NAME} in its place, which is looked up in the environment, or use a .mcp.json file"
        )


def _of_command(text: str, directory: str | None) -> StdioServer:
    place = f"tools {PREFIX}{text}"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise GraphUnknown(f"{place}: it cannot be split into words: {error}") from None
    env: dict[str, str] = {}
    variables = Variables()
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        if not VARIABLE.fullmatch(found[2]):
            raise GraphUnknown(
                f"tools {PREFIX}{found[1]}=...: references are stored with a run, so values of variables are not "
                f"written in them: write {found[1]}=${{{found[1]}}}, or use a .mcp.json file"
            )
        env[found[1]] = variables.expanded(found[2], place)
        words.pop(0)
    if not words:
        raise GraphUnknown(f"{place}: it contains no command")
    command, *args = (variables.expanded(word, place) for word in words)
    return StdioServer(command, tuple(args), env, directory)


def servers_in(path: str | Path, name: str | None = None) -> list[Server]:
    """Return the servers of a file in the form of other clients.

    That is `{"mcpServers": {NAME: {...}}}`, or as VS Code writes it `{"servers": {NAME: {...}}, "inputs": [...]}`, also
    under `"mcp"`, or as OpenCode writes it `{"mcp": {NAME: {...}}}`, and with comments. A server has `command`, `args`,
    `env` and `cwd`, or `url` and `headers`, see `_usual` for other names of these; in all of them variables are
    replaced, see `Variables`. Servers with `"disabled": true` or `"enabled": false` are left out.

    Args:
        path: the file.
        name: return only this server.

    Raises:
        GraphUnknown: the file or the server does not exist or cannot be read, or a variable or an input has no value.
    """
    where = f"tools {PREFIX}{path}"
    read = _read(path, where)
    if not read.keys() & {"mcpServers", "servers"} and isinstance(read.get("mcp"), dict):
        read = read["mcp"]
        if not read.keys() & {"mcpServers", "servers"} and all(isinstance(one, dict) for one in read.values()):
            read = {"servers": json.loads(_OF_OPENCODE.sub("${", json.dumps(read)))}
    listed = read.get("mcpServers", read.get("servers"))
    if not isinstance(listed, dict) or not listed:
        raise GraphUnknown(f'{where}: it lists no servers: {{"mcpServers": {{"NAME": {{"command": ...}}}}}}')
    listed = {one: _usual(f"{where}#{one}", entry) for one, entry in listed.items()}
    if name is not None and name not in listed:
        raise GraphUnknown(f"{where}#{name}: there is no server {name!r} in it; there are: {', '.join(listed)}")
    wanted = [one for one in listed if (one == name if name is not None else _enabled(f"{where}#{one}", listed[one]))]
    if not wanted:
        raise GraphUnknown(f"{where}: every server in it is disabled; name one with #NAME")
    return [_of_entry(f"{where}#{one}", one, listed[one], Variables(Path(path), read.get("inputs"))) for one in wanted]


def _read(path: str | Path, where: str) -> dict[str, Any]:
    try:
        text = read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise GraphUnknown(f"{where}: the file cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise GraphUnknown(f"{where}: {error}") from None
    try:
        read = json.loads(without_comments(text))
    except (ValueError, RecursionError) as error:
        raise GraphUnknown(f"{where}: the file is not JSON: {error}") from None
    return read if isinstance(read, dict) else {}


def without_comments(text: str) -> str:
    """Return JSON text without the comments and trailing commas that editors allow; its lines stay."""
    bare = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)
    return _TRAILING_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else " ", bare)


def _usual(where: str, entry: object) -> object:
    """Return a server of a file in the usual form: without nulls, and with the usual names of keys.

    Raises:
        GraphUnknown: it gives one thing under two names.
    """
    if not isinstance(entry, dict):
        return entry
    found = {key: value for key, value in entry.items() if value is not None}
    for other, usual in _OTHER_NAMES.items():
        if other in found and usual in found:
            raise GraphUnknown(f"{where}: it has both {other!r} and {usual!r}: leave one out")
        if other in found:
            found[usual] = found.pop(other)
    if isinstance(found.get("command"), list) and found["command"] and "args" not in found:
        found["command"], *found["args"] = found["command"]
    return found


def _enabled(where: str, entry: object) -> bool:
    if not isinstance(entry, dict):
        return True
    _check_switches(where, entry)
    return not entry.get("disabled", False) and bool(entry.get("enabled", True))


def _check_switches(where: str, entry: Mapping[str, object]) -> None:
    for key in _SWITCHES:
        if not isinstance(entry.get(key, False), bool):
            raise GraphUnknown(f"{where}: {key!r} is neither true nor false")


def _of_entry(where: str, name: str, entry: object, variables: Variables) -> Server:
    if not isinstance(entry, dict):
        raise GraphUnknown(f"{where}: a server must be an object with 'command' or 'url'")
    _check_switches(where, entry)
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise GraphUnknown(f"{where}: the old SSE transport is not supported; use the server's streamable HTTP")
    is_http = "url" in entry and (kind is None or kind in _HTTP)
    if not is_http and ("command" not in entry or kind not in (None, *_STDIO)):
        raise GraphUnknown(f"{where}: a server must have 'command' (stdio) or 'url' (http), and a 'type' that agrees")
    unknown = entry.keys() - _KEYS - (_HTTP_KEYS if is_http else _STDIO_KEYS)
    if unknown:
        log.warning("%s: not used: %s", where, ", ".join(sorted(map(narrow, unknown))))
    offers = tuple(key for key in ("resources", "prompts") if entry.get(key) is True)
    if is_http:
        url = variables.expanded(_text(where, entry, "url"), f"{where}: 'url'")
        if not url.startswith(("http://", "https://")):
            raise GraphUnknown(f"{where}: 'url' does not begin with http:// or https://")
        headers = _texts(where, entry, "headers", variables)
        return HttpServer(url, headers, name, tuple(variables.secrets), offers)
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise GraphUnknown(f"{where}: 'args' is not a list of strings")
    command = variables.expanded(_text(where, entry, "command"), f"{where}: 'command'")
    words = tuple(variables.expanded(one, f"{where}: 'args'") for one in args)
    env = {**_env_file(where, entry, variables), **_texts(where, entry, "env", variables)}
    cwd = variables.expanded(_text(where, entry, "cwd"), f"{where}: 'cwd'") if "cwd" in entry else "."
    return StdioServer(command, words, env, str(variables.folder / cwd), name, tuple(variables.secrets), offers)


def _env_file(where: str, entry: Mapping[str, object], variables: Variables) -> dict[str, str]:
    """Return the variables of the file that `envFile` names, as they stand there.

    Raises:
        GraphUnknown: it cannot be read, or is not below the directory of the file of servers.
    """
    if "envFile" not in entry:
        return {}
    from dotenv import dotenv_values

    place = f"{where}: 'envFile'"
    path = (variables.folder / variables.expanded(_text(where, entry, "envFile"), place)).resolve()
    if not path.is_relative_to(variables.folder.resolve()):
        raise GraphUnknown(f"{place}: the file is not below {variables.folder}: name its variables under 'env'")
    try:
        found = dotenv_values(stream=StringIO(read_bounded(path, MOST_BYTES)), interpolate=False)
    except (OSError, ValueError) as error:
        raise GraphUnknown(f"{place}: the file cannot be read: {error}") from None
    return {name: value for name, value in found.items() if value is not None and "\0" not in value}


def _text(where: str, entry: Mapping[str, object], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value:
        raise GraphUnknown(f"{where}: {key!r} is not a string")
    return value


def _texts(where: str, entry: Mapping[str, object], key: str, variables: Variables) -> dict[str, str]:
    found = entry.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(one, str | int | float) for one in found.values()):
        raise GraphUnknown(f"{where}: {key!r} is not an object of strings")
    return {
        str(name): variables.expanded(str(value), f"{where}: '{key}.{narrow(str(name))}'")
        for name, value in found.items()
    }


def absolute(ref: str) -> str:
    """Return a reference for a process in another directory: the path of a file is made absolute."""
    text = ref.removeprefix(PREFIX)
    if text.startswith(("http://", "https://")) or not is_file(text):
        return ref
    file, mark, name = text.partition("#")
    return f"{PREFIX}{Path(file).absolute()}{mark}{name}"


def secret_written_in(text: str) -> str | None:
    """Return the name of the part of a reference that contains a secret, such as `--api-key`; None if none is found."""
    known = VARIABLE.sub(lambda found: f"env:{found[1]} {found[2] or ''}", text)
    if redact(known) != known:
        return "it"
    if _is_address(text):
        return _in_address(text)
    try:
        words = shlex.split(text)
    except ValueError:
        return None  # it is refused for another reason
    while words and (found := _ASSIGNED.fullmatch(words[0])) and not VARIABLE.fullmatch(found[2]):
        words.pop(0)  # a reference without a command is reported elsewhere
    return _in_words(words)


def is_secret_name(name: str) -> bool:
    """Return True if a name suggests a secret: `api-key`, `GITHUB_TOKEN`, `dbPassword`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    parts = [part for part in re.split(r"[-_.]+", words) if part]
    return bool(parts) and parts[-1] not in _ABOUT_ONE and not _SECRET.isdisjoint(parts)


def _in_words(words: list[str], depth: int = 0) -> str | None:
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        assigned, option = _ASSIGNED.fullmatch(word), _OPTION.fullmatch(word)
        if assigned is not None and is_secret_name(assigned[1]) and _is_value(assigned[2]):
            return word.partition("=")[0]
        named = word in _SHORT or (option is not None and is_secret_name(option[1]))
        if named and not following.startswith("-") and _is_value(following):
            return word
        if word.startswith(_SHORT) and len(word) > 9 and option is not None:
            return word[:2]
        header, user = _HEADER.fullmatch(word), _USER.fullmatch(word)
        if header is not None and is_secret_name(header[1]) and _is_value(header[2]):
            return f"{header[1]}:"
        if user is not None and _is_pair(user[2] or following):
            return user[1]
        if _AT_HOST.fullmatch(VARIABLE.sub(lambda found: found[2] or "", word)):
            return "its address"
        if _is_address(word) and (found := _in_address(word)) is not None:
            return found
        if depth < _DEEPEST and any(char.isspace() for char in word):  # the command of a shell
            try:
                inner = _in_words(shlex.split(word), depth + 1)
            except ValueError:
                continue
            if inner is not None:
                return inner
    return None


def _is_address(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://"))


def _is_pair(text: str) -> bool:
    """Return True if a text is a user with a password, and neither a host with a port nor a user with a group."""
    found = _PAIR.fullmatch(VARIABLE.sub(lambda found: found[2] or "", text))
    if found is None or found[1] == found[2]:
        return False
    return not found[2].isdigit() or (len(found[2]) > 5 and not found[1].isdigit())


def _in_address(text: str) -> str | None:
    named = VARIABLE.sub(lambda found: f"%24{found[2] or ''}", text)  # one word, in which a default is kept
    try:
        parts = urlsplit(named)
        query = parse_qsl(parts.query.replace("%24", "$"), keep_blank_values=True)
    except ValueError:
        return None
    user = parts.netloc.rpartition("@")[0]
    if user.replace("%24", "").strip(":"):
        return "its address"
    for name, value in query:
        if is_secret_name(name) and value.replace("$", ""):
            return f"{name}= in its address"
    return None


def _is_value(text: str) -> bool:
    """Return True if a string contains a literal value: more than references such as `${NAME}` and a scheme such as
    `Bearer`.
    """
    left = VARIABLE.sub(lambda found: found[2] or "", text)
    words = [word for word in re.split(r"[^\w]+", left) if word]
    return any(word.lower() not in _SCHEMES for word in words)
