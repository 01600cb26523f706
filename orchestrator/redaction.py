"""Whatever looks like a secret is blanked where it is shown. The journal keeps it: changed records fold differently.

The patterns see text of any length and origin, so each of them takes time in proportion to the text: repetitions are
possessive or bounded, and no place is looked at anew for each beginning of a match.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

BLANK = "[redacted]"
_LEAST = 4
"""Characters that a secret with a name has at least."""
_START = r"(?:\b|(?<=\\[abefnrtv0])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\U[0-9A-Fa-f]{8}))"
"""Where a word begins, also behind a character that was already written as an escape, such as `\\n` in JSON."""

_WHOLE = re.compile(
    rf"""
      -----BEGIN[ ](?:[A-Z]{{1,20}}[ ]){{0,3}}PRIVATE[ ]KEY-----
        .*?(?:-----END[ ](?:[A-Z]{{1,20}}[ ]){{0,3}}PRIVATE[ ]KEY-----|\Z)
    | {_START}sk-[A-Za-z0-9_-]{{16,}}+                         # OpenAI, Anthropic and those that copy them
    | {_START}gh[pousr]_[A-Za-z0-9]{{20,}}+ | {_START}github_pat_\w{{20,}}+ | {_START}glpat-[\w-]{{16,}}+
    | {_START}xox[abeprs]-[A-Za-z0-9-]{{10,}}+                 # Slack
    | {_START}(?:AKIA|ASIA)[A-Z0-9]{{16}}\b                    # AWS
    | {_START}AIza[\w-]{{30,}}+                                # Google
    | {_START}hf_[A-Za-z0-9]{{20,}}+ | {_START}[rs]k_(?:live|test)_[A-Za-z0-9]{{16,}}+ | {_START}npm_[A-Za-z0-9]{{30,}}+
    """,
    re.VERBOSE | re.DOTALL,
)
_WEB_TOKEN = re.compile(rf"(?<![\w-])((?:(?!{_START}eyJ)[\w-])*+)eyJ[\w-]{{8,}}+\.[\w-]{{8,}}+\.[\w-]*+")
"""JSON web tokens. A word is entered at its start only: what follows its first `eyJ` is looked at once."""
_BEARER = re.compile(rf"(?i){_START}(bearer|basic)(\s{{1,20}})[A-Za-z0-9+/._~=-]{{12,}}+")
_USERINFO = re.compile(rf"({_START}[a-z][a-z0-9+.-]{{1,20}}://[^\s:/@]{{0,100}}:)[^\s/@]{{1,200}}(?=@)", re.IGNORECASE)
_NAMED = re.compile(
    r"""(?ix)
    ((?:api[_-]?key|secret|token|passw(?:or)?d|passwd|credential|private[_-]?key)[\w-]{0,20}
        ["']?\s{0,4}[:=]\s{0,4})
    (?: (?: "(?!env:)[^"]{4,}+" | '(?!env:)[^']{4,}+'
          | (?!(?:none|null|true|false)\b)(?!env:)[^\s"',;})\]\[]{0,200}+\[redacted\] )
        (?:\[redacted\]|[^\s"',;})\]\[])*+
      | (?!(?:none|null|true|false)\b)(?!env:)[^\s"',;})\]]{4,}+ )
    """
)
"""What follows a quoted or a blanked value directly is taken with it, so that redacting twice changes nothing."""


def redact(text: str) -> str:
    """The text with key-like strings, bearer tokens, passwords in addresses and `password=...` values blanked.

    References of the form `env:NAME` stay: they name a secret and hold none.
    """
    text = _WHOLE.sub(BLANK, text)
    text = _WEB_TOKEN.sub(rf"\1{BLANK}", text)
    text = _BEARER.sub(rf"\1\2{BLANK}", text)
    text = _NAMED.sub(rf"\1{BLANK}", text)
    return _USERINFO.sub(rf"\1{BLANK}", text)  # last: what a named value ended at may stand in a password


def redacted(value: object, redact: Callable[[str], str] = redact) -> object:
    """Plain JSON in which every text is redacted, also one whose name in an object says that it is a secret."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _under(str(key), part, redact) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(part, redact) for part in value]
    return value


def _under(key: str, value: object, redact: Callable[[str], str]) -> object:
    """A value that has a name, which may say that it is a secret (`password`)."""
    if not isinstance(value, str) or value.startswith("env:"):
        return redacted(value, redact)
    secret = len(value) >= _LEAST and redact(f"{key}: 'something'") == f"{key}: {BLANK}"
    return BLANK if secret else redact(value)


# -- secrets that are known ----------------------------------------------------------------------------------------

_KNOWN_AT_MOST = 200
_known: dict[str, tuple[str, ...]] = {}
"""Values that this process was given as secrets, each with the ways to write it, in the order in which they came."""


def know(secret: str) -> None:
    """Remember a value as a secret for as long as the process lives: results and errors are journaled without it.

    Short words are no secrets: `ollama`, as the key of a server that wants none, may well stand in a reply.
    """
    if secret in _known or not _telling(secret):
        return
    if len(_known) >= _KNOWN_AT_MOST:
        del _known[next(iter(_known))]
    _known[secret] = forms_of(secret)


def _telling(secret: str) -> bool:
    """Whether a value is found in a text only where it was put."""
    return len(secret) >= 16 or (len(secret) >= 8 and any(sign.isdigit() for sign in secret))


def forms_of(secret: str) -> tuple[str, ...]:
    """The ways to write a secret: as it is, as JSON, Python, addresses and hex digits have it, and in base64.

    In base64 it looks different by what stands before it: there are three ways, without the signs at both ends that
    its neighbours have a part in.
    """
    data = secret.encode("utf-8", "surrogatepass")
    found = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], data.hex(), data.hex().upper()}
    found |= {quote(data, safe=""), quote_plus(data)}
    if _telling(secret):
        for before in range(3):
            core = slice(-(-before * 8 // 6), (before + len(data)) * 8 // 6)
            shifted = b"\0" * before + data
            found |= {base64.b64encode(shifted)[core].decode(), base64.urlsafe_b64encode(shifted)[core].decode()}
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def without_known(text: str) -> str:
    """The text with every secret that is known blanked, in whichever way it is written."""
    for forms in [*_known.values()]:
        for form in forms:
            if form in text:
                text = text.replace(form, BLANK)
    return text


def without_known_in(value: object) -> object:
    """The same of all texts in plain JSON; the value itself if it has none."""
    if not _known:
        return value
    if isinstance(value, str):
        return without_known(value)
    if isinstance(value, dict):
        pairs = [(without_known(str(key)), without_known_in(part)) for key, part in value.items()]
        changed = any(a is not b or k != key for (k, a), (key, b) in zip(pairs, value.items(), strict=True))
        return dict(pairs) if changed else value
    if isinstance(value, list):
        parts = [without_known_in(part) for part in value]
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value
