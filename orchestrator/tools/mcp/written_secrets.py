"""Secrets that are written in the text of a reference to a server.

A reference is stored with each run, so no secret may be in it. Some are known by their look (`redact`); any word can be
one where its name says so: `--api-key abc`, `--pw=abc`, `-k abc`, `TOKEN=abc`, `?key=abc`, `-H 'X-Api-Key: abc'`; or
where a user stands before it: `-u ann:abc`, `--user=ann:abc`, `ann:abc@x.example`.
"""

from __future__ import annotations

import re
import shlex
from urllib.parse import parse_qsl, urlsplit

from orchestrator.redaction import redact

VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]{0,200})(?::-([^}]{0,2000}+))?\}")
"""`${NAME}`, `${env:NAME}` or `${NAME:-default}`: looked up in the environment when the server is connected."""

_SECRET = frozenset(
    ("apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "key", "pass", "passphrase",
     "passwd", "password", "pat", "pw", "pwd", "secret", "sig", "signature", "token")
)  # fmt: skip
_ABOUT_ONE = frozenset(
    ("count", "dir", "env", "file", "header", "id", "length", "limit", "name", "path", "size", "type", "url", "var")
)
"""What a name ends with that is about a secret and holds none: `--token-file`."""
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


def secret_written_in(text: str) -> str | None:
    """What holds a secret in a reference, such as `--api-key`; None if nothing is known to."""
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
        words.pop(0)  # no value at all is written before the command, which is said elsewhere
    return _in_words(words)


def is_secret_name(name: str) -> bool:
    """Whether what a name stands for is a secret: `api-key`, `GITHUB_TOKEN`, `dbPassword`."""
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
    """Whether a text is a user with a password, and neither a host with a port nor a user with a group."""
    found = _PAIR.fullmatch(VARIABLE.sub(lambda found: found[2] or "", text))
    if found is None or found[1] == found[2]:
        return False
    return not found[2].isdigit() or (len(found[2]) > 5 and not found[1].isdigit())


def _in_address(text: str) -> str | None:
    named = VARIABLE.sub(lambda found: f"%24{found[2] or ''}", text)  # one word, in which a default stays
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
    """Whether a text is a value of its own, and not the name of a variable that has it."""
    left = VARIABLE.sub(lambda found: found[2] or "", text)
    words = [word for word in re.split(r"[^\w]+", left) if word]
    return any(word.lower() not in _SCHEMES for word in words)
