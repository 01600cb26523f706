"""Whatever looks like a secret is blanked where it is shown. The journal keeps it: changed records fold differently.

The patterns see text of any length and origin, so each of them takes time in proportion to the text: repetitions are
possessive or bounded, and no place is looked at anew for each beginning of a match.
"""

from __future__ import annotations

import re
from collections.abc import Callable

BLANK = "[redacted]"
_LEAST = 4
"""Characters that a secret with a name has at least."""

_WHOLE = re.compile(
    r"""
      -----BEGIN[ ](?:[A-Z]{1,20}[ ]){0,3}PRIVATE[ ]KEY-----
        .*?(?:-----END[ ](?:[A-Z]{1,20}[ ]){0,3}PRIVATE[ ]KEY-----|\Z)
    | \bsk-[A-Za-z0-9_-]{16,}+                         # OpenAI, Anthropic and those that copy them
    | \bgh[pousr]_[A-Za-z0-9]{20,}+ | \bgithub_pat_\w{20,}+ | \bglpat-[\w-]{16,}+
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}+                 # Slack
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                    # AWS
    | \bAIza[\w-]{30,}+                                # Google
    | \bhf_[A-Za-z0-9]{20,}+ | \b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+ | \bnpm_[A-Za-z0-9]{30,}+
    """,
    re.VERBOSE | re.DOTALL,
)
_WEB_TOKEN = re.compile(r"(?<![\w-])((?:(?!\beyJ)[\w-])*+)eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+")
"""JSON web tokens. A word is entered at its start only: what follows its first `eyJ` is looked at once."""
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s{1,20})[A-Za-z0-9+/._~=-]{12,}+")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,100}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE)
_NAMED = re.compile(
    r"""(?ix)
    ((?:api[_-]?key|secret|token|passw(?:or)?d|passwd|credential|private[_-]?key)[\w-]{0,20}
        ["']?\s{0,4}[:=]\s{0,4})
    (?: "(?!env:)[^"]{4,}+" | '(?!env:)[^']{4,}+'
      | [^\s"',;})\]\[]{0,200}+\[redacted\](?:\[redacted\]|[^\s"',;})\]])*+
      | (?!(?:none|null|true|false)\b)(?!env:)[^\s"',;})\]]{4,}+ )
    """
)
"""What is blanked already is taken whole, so that redacting twice changes nothing."""


def redact(text: str) -> str:
    """The text with key-like strings, bearer tokens, passwords in addresses and `password=...` values blanked.

    References of the form `env:NAME` stay: they name a secret and hold none.
    """
    text = _WHOLE.sub(BLANK, text)
    text = _WEB_TOKEN.sub(rf"\1{BLANK}", text)
    text = _BEARER.sub(rf"\1\2{BLANK}", text)
    text = _USERINFO.sub(rf"\1{BLANK}", text)
    return _NAMED.sub(rf"\1{BLANK}", text)


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
