"""Blanks everything that looks like a secret where it is shown. The journal keeps it: changed records fold differently.

The patterns are applied to text of any length and origin, so their time is linear and small: each starts with a literal
or a set of characters, which `re` finds quickly, and its repetitions are possessive or bounded. Text is searched in
pieces, because other threads wait while a search runs.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, TypeAlias
from urllib.parse import quote, quote_plus

BLANK = "[redacted]"
_LEAST = 4
"""Minimum length of a named secret."""
_SHORTEST = 15
"""Minimum length of a string that contains a secret without a `:` or `=`: a key."""
_SHORT = 4 * 1024
"""Characters of a string up to which it pays to check first whether anything is long enough for a key."""
_NAME = 200
"""Characters at the end of a name that determine whether its value is a secret."""
_PIECE = 192 * 1024
"""Characters that one search examines for the starts of secrets."""
_LONGEST = 64 * 1024
"""The longest secret that is always blanked as a whole. Blocks of private keys have no such bound."""

_ESCAPE = r"\\(?:[abefnrtv0]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
"""A character that was already written as an escape, such as `\\n` in JSON: a word starts after it."""
_QUOTE = r"""\\{0,7}["']"""
"""A quote, possibly escaped because it is in JSON within JSON."""
_WORD = r"[A-Za-z0-9_-]"

_KEYS = {
    "sk-": rf"{_WORD}{{16,}}+",  # OpenAI, Anthropic and compatible services
    "gh": r"[pousr]_[A-Za-z0-9]{20,}+",
    "github_pat_": r"[A-Za-z0-9_]{20,}+",
    "gl": rf"(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-{_WORD}{{16,}}+(?:\.[0-9a-z]{{2,9}}\b){{0,2}}",  # GitLab
    "xox": r"[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}+",  # Slack
    "xapp-": r"[0-9]-[A-Za-z0-9-]{16,}+",
    "AKIA": r"[A-Z0-9]{16}\b",  # AWS
    "ASIA": r"[A-Z0-9]{16}\b",
    "AIza": rf"{_WORD}{{30,}}+",  # Google
    "GOCSPX-": rf"{_WORD}{{16,}}+",
    "ya29.": rf"(?:[a-z]\.)?{_WORD}{{20,}}+",
    "hf_": r"[A-Za-z0-9]{20,}+",  # Hugging Face
    "sk_": r"(?:live|test|prod)_[A-Za-z0-9]{16,}+",  # Stripe
    "rk_": r"(?:live|test|prod)_[A-Za-z0-9]{16,}+",
    "whsec_": r"[A-Za-z0-9+/=]{16,}+",
    "npm_": r"[A-Za-z0-9]{30,}+",
    "pypi-AgE": rf"{_WORD}{{16,}}+",
    "gsk_": r"[A-Za-z0-9]{20,}+",  # Groq
    "xai-": r"[A-Za-z0-9]{20,}+",
    "pplx-": r"[A-Za-z0-9]{20,}+",  # Perplexity
    "tvly-": r"[A-Za-z0-9-]{20,}+",  # Tavily
    "lsv2_": r"(?:pt|sk)_[A-Za-z0-9_]{20,}+",  # LangSmith
    "r8_": r"[A-Za-z0-9]{20,}+",  # Replicate
    "SG.": rf"{_WORD}{{16,}}+\.{_WORD}{{16,}}+",  # SendGrid
    "hv": rf"[bsr]\.{_WORD}{{20,}}+",  # Vault
    "dapi": r"[a-f0-9]{32}(?:-[0-9])?\b",  # Databricks
    "do": r"[opr]_v1_[a-f0-9]{32,}+\b",  # DigitalOcean
    "shp": r"(?:at|ca|pa|ss)_[A-Fa-f0-9]{32,}+\b",  # Shopify
    "lin_": r"(?:api|oauth)_[A-Za-z0-9]{20,}+",  # Linear
    "fig": rf"[dorh]_{_WORD}{{20,}}+",  # Figma
    "AGE-SECRET-KEY-": rf"{_WORD}{{20,}}+",
}
"""Prefixes of services' keys, and the patterns of the remaining characters."""
_TOKEN = rf"{_WORD}{{8,}}+"
_TOKEN_PARTS = rf"\.{_WORD}{{8,}}+\.{_WORD}*+(?:\.{_WORD}++){{0,2}}"
_MAY_HOLD_KEY = re.compile(r"[A-Za-z0-9_.-]{15}")
_ANY_KEY = "|".join(re.escape(start) + rest for start, rest in _KEYS.items())
_IN_THIS_CASE = (
    # Text that only starts like a web token is skipped as group 1: otherwise each `eyJ` in it would be searched to the
    # end.
    re.compile(rf"eyJ(?<![A-Za-z0-9_]eyJ){_TOKEN}(?:{_TOKEN_PARTS}|())"),
    re.compile(rf"({_ESCAPE})(?:{_ANY_KEY}|eyJ{_TOKEN}{_TOKEN_PARTS})"),
    re.compile(rf"(:)A(?<=[0-9]{{6}}:A){_WORD}{{34}}(?!{_WORD})"),  # Telegram
)
"""Patterns of secrets by their form. Group 1, if there is one, is kept."""


@cache
def _key_pattern(start: str) -> re.Pattern[str]:
    """Return the pattern of the keys with a prefix. It is compiled when a text first contains the prefix."""
    literal = re.escape(start)
    return re.compile(rf"{literal}(?<![A-Za-z0-9_]{literal}){_KEYS[start]}")


_BEARER = re.compile(
    r"""(?x)
    ([bB](?:[eE][aA][rR][eE][rR]|[aA][sS][iI][cC])(?:\s|%20){1,20}+)
    (?!(?:[A-Z]?[a-z]{0,15}+|[A-Z]{0,15}+)\.{0,3}+(?![A-Za-z0-9+/._~=-]))  # a word: Basic authentication
    [A-Za-z0-9+/._~=-]{12,}+
    """
)


def _string(quote: str, name: str, but: str = "") -> str:
    """Return a pattern of a quoted text. It may contain quotes with other escapes.

    Args:
        name: the group of the characters that escape the quotes.
        but: text that must not follow the first quote.
    """
    return rf"""
        (?P<{name}>\\{{0,7}}+){quote}{but}
        (?:[^{quote}\\]{{1,64}}+|\\{{1,64}}+(?![{quote}\\])|(?P={name})\\{{1,64}}+{quote}){{0,256}}+(?P={name}){quote}
    """


def _quoted(quote: str, name: str) -> str:
    """Return a pattern of a quoted text that may be a secret."""
    return _string(quote, name, rf"(?!env:)(?![^{quote}\\]{{0,3}}+(?P={name}){quote})")


_GAP = r"(?:\s|\\[nrt]){1,20}+"
_FIELD = r"""[^\s\\"']{1,200}+"""
_LOGIN = rf"(?:(?:login|account){_GAP}{_FIELD}{_GAP}){{1,2}}password{_GAP}"
_ASSIGNED = rf"[\w-]{{0,20}}+(?:{_QUOTE})?+\s{{0,4}}+(?::=|=>|[:=])\s{{0,4}}+"
_NUMBER = r"""[0-9]{1,9}\.?(?![^\s"',;})\]])"""
_ABSENT = r"(?!(?:none|null|true|false)\b|env:)"
_SECRET_NAMES = r"""
    api[_-]?key | secret | pass(?: [_-]?w(?:or)?d | wd | [ _-]?phrase | code ) | pswd | credential
    | private[_-]?key | account[_-]?key | sharedaccesskey(?!name)
"""
"""Starts, or parts, of names whose values are secrets, apart from tokens."""
_PATH = r"(?:[/~.$%]|[A-Za-z]:[\\/])"
"""The start of a directory's path."""
_is_path = re.compile(_PATH).match
_IN_ANY_CASE = (
    re.compile(r"(hooks\.slack(?:-gov)?\.com\\?/[a-z]{1,20}+\\?/)(?:[a-z0-9_/+-]|\\/){16,}+"),
    re.compile(r"(webhooks\\?/[0-9]{5,25}+\\?/)[a-z0-9_-]{30,}+"),  # Discord
    re.compile(rf"(machine{_GAP}{_FIELD}{_GAP}{_LOGIN}){_FIELD}"),  # .netrc
    re.compile(rf"(machine{_GAP}{_FIELD}{_GAP}password{_GAP}){_FIELD}(?={_GAP}login{_GAP})"),
    re.compile(rf"(default{_GAP}{_LOGIN}){_FIELD}"),
    re.compile(
        rf"""(cookie(?:{_QUOTE})?+\s{{0,4}}+:\s{{0,4}}+(?:{_QUOTE})?+)(?=[\w!#$%&*+.^`|~-]{{1,100}}+=)[^\r\n"'\\]{{3,}}+"""
    ),
    re.compile(
        rf"""(?x)
        ((?: {_SECRET_NAMES} | token(?!s{_ASSIGNED}{_NUMBER}) ){_ASSIGNED})
        (?: (?: {_quoted('"', "double")} | {_quoted("'", "single")}
              | {_ABSENT}[^\s"',;}})\]\[]{{0,200}}+\[redacted\] )
            (?:\[redacted\]|[^\s"',;}})\]\[])*+
          | (?:{_QUOTE})?+{_ABSENT}[^\s"',;}})\]]{{4,}}+ )
        """
    ),
    re.compile(
        r"""([?&;6](?:key|sig|(?:x-(?:amz|goog)-)?signature)=)(?=[^\s?&#"'<>\\]{0,100}[0-9])[^\s?&#"'<>\\]{8,}+"""
    ),  # `&` may be written as `\u0026`
)
"""Patterns of secrets by the text before them, in lower case. Group 1 is kept.

Text that directly follows a quoted or blanked value is included, so that redacting twice changes nothing.
"""
_PWD = (
    re.compile(
        rf"""(?x)
        (pwd(?:{_QUOTE})?+\s{{0,4}}+(?::=|=>|[:=])\s{{0,4}}+)(?!{_QUOTE}{_PATH})
        (?: {_quoted('"', "double")} | {_quoted("'", "single")} )
        """
    ),
    re.compile(rf"""(pwd=)(?!{_PATH}|env:)[^\s"',;&(){{}}\[\]<>]{{4,}}+(?![(\[),])"""),
)
"""Patterns for the name `pwd`, which can also be the working directory: neither `PWD=/home/ann` nor `pwd = os.getcwd()`
is a secret.
"""
_HOLDS = re.compile(r":\s{0,4}+[\[{]")
_NESTED = re.compile(
    rf"""(?x)(?P<name>(?: {_SECRET_NAMES} | token )[\w-]{{0,20}}+){_QUOTE}\s{{0,4}}+:\s{{0,4}}+(?=[\[{{])"""
)
"""The name of a list or an object in JSON."""
_PART = re.compile(
    rf"""(?x)
    (?P<sign>[\[\]{{}}:]) | {_string('"', "double")} | {_string("'", "single")} | (?P<cut>["'][^\s"',;}})\]\[]*+)
    """
)
"""A part of a list or an object. `cut` is a string whose end is missing."""
_DEEPEST = 16
"""Maximum number of levels of nested lists and objects that are treated as one value."""
_VALUE_NAMES = frozenset({"value", "values", "plaintext", "cleartext", "old", "new"})
"""Names that hold the secret itself in an object which is named like a secret."""
_SCHEMA_NAMES = frozenset(
    {
        "type",
        "$ref",
        "anyof",
        "oneof",
        "allof",
        "enum",
        "const",
        "items",
        "properties",
        "format",
        "title",
        "description",
    }
)
"""Names in the description of a value: an object with one of them contains no values."""
_CURL = re.compile(r"(?s)curl[\s\"'](?:[^\n\\]{1,100}+|\\.){0,100}+")
_CURL_USER = re.compile(
    r"""(-(?<=[\s"']-)(?:[uU]|-(?:proxy-)?user)[\\"',=\s]{0,12}+[^\s:"'\\]{1,100}+:)(?!\$|//)[^\s"'\\]++"""
)
_USERINFO = re.compile(r"(://(?<=[A-Za-z0-9+.-]://)[^\s:/@]{0,100}+:)[^\s/@]{1,1000}+(?=@)")
_KEY_LABEL = r"(?:(?!PRIVATE )[A-Z0-9]{1,20}+ ){0,3}+PRIVATE KEY"
_BLOCKS = (
    (re.compile(rf"-----BEGIN {_KEY_LABEL}(?: BLOCK)?-----"), re.compile(rf"-----END {_KEY_LABEL}(?: BLOCK)?-----")),
    (re.compile(rf"---- BEGIN {_KEY_LABEL} ----"), re.compile(rf"---- END {_KEY_LABEL} ----")),
    (re.compile(r"Private-Lines: [0-9]"), re.compile(r"Private-(?:MAC|Hash):")),  # PuTTY
)
"""Start and end of a private key. One without an end extends to the end of the text."""

_OTHER_LETTERS = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"))
"""Letters that `re` treats as ASCII ones if case is ignored, unlike `str.lower`; the first would become two."""

_is_field = re.compile(r"[a-z_]{0,40}+").fullmatch
"""Names that records and documents consist of. No pattern blanks them: their readers would not find them."""

_Span: TypeAlias = tuple[int, int]
_own: list[re.Pattern[str]] = []


def redact_also(pattern: str | re.Pattern[str]) -> None:
    """Also blank the matches of a pattern, in every view, page, log line and redacted export of this process.

    Args:
        pattern: a regular expression, with its flags if it is compiled. Its time is added to every view.

    Raises:
        ValueError: it cannot be compiled, or it matches the empty text.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} for redaction cannot be compiled: {error}") from None
    if compiled.search(""):
        raise ValueError(f"the pattern {compiled.pattern!r} for redaction matches the empty text: name what to blank")
    if compiled not in _own:
        _own.append(compiled)
    _says_secret.cache_clear()


def redact(text: str) -> str:
    """Return the text with key-like strings, bearer tokens, passwords in addresses and `password=...` values blanked.

    References of the form `env:NAME` stay: they name a secret and do not contain it. Patterns of `redact_also` come
    first.
    """
    for pattern in _own:
        parts = text.split(BLANK)  # text that is already blanked is not searched
        text = BLANK.join(_blank(part, (found.span() for found in _matches(part, pattern))) for part in parts)
    if len(text) < _SHORTEST and ":" not in text and "=" not in text:
        return text
    for begin, end in _BLOCKS:
        if _may_match(begin, text):
            text = _blank(text, _blocks(text, begin, end))
    if len(text) > _SHORT or _MAY_HOLD_KEY.search(text):
        keys = [_key_pattern(start) for start in _KEYS if start in text]
        for pattern in (*keys, *_IN_THIS_CASE):
            if _may_match(pattern, text):
                text = _blank(text, _secrets(text, pattern))
    if _may_match(_BEARER, text):
        text = _blank(text, _secrets(text, _BEARER))
    if _may_match(_CURL, text):
        text = _blank(text, _given_to_curl(text))
    lowered = _lowered(text)
    for pattern in (*_IN_ANY_CASE, *_PWD) if "pwd" in lowered else _IN_ANY_CASE:
        if _may_match(pattern, lowered):
            found = [*_secrets(lowered, pattern)]
            text, lowered = _blank(text, found), _blank(lowered, found)
    if next(_matches(lowered, _HOLDS), None) is not None:
        text = _blank(text, _in_values(lowered))
    if _may_match(_USERINFO, text):  # last: the character that ended a named value may be part of a password
        text = _blank(text, _secrets(text, _USERINFO))
    return text


def _may_match(pattern: re.Pattern[str], text: str) -> bool:
    """Return True if the text may contain a match. Most strings are short and contain none, which one call finds
    out."""
    return len(text) > _PIECE or pattern.search(text) is not None


def _matches(text: str, pattern: re.Pattern[str], start: int = 0) -> Iterator[re.Match[str]]:
    """Yield the non-empty matches of a pattern: those of the whole text, if none is longer than `_LONGEST`."""
    while start < len(text):
        stop = start + _PIECE
        for found in pattern.finditer(text, start, stop + _LONGEST):
            if found.start() >= stop:
                break
            if found.end() > found.start():
                yield found
            start = found.end()
        start = max(start, stop)


def _secrets(text: str, pattern: re.Pattern[str]) -> Iterator[_Span]:
    """Yield the spans that a pattern matches, without its group 1."""
    for found in _matches(text, pattern):
        start = max(found.start(), found.end(1)) if pattern.groups else found.start()
        if start < found.end():
            yield start, found.end()


def _blocks(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> Iterator[_Span]:
    done = 0
    for first in _matches(text, begin):
        if first.start() < done:
            continue
        last = next(_matches(text, end, first.end()), None)
        done = len(text) if last is None else last.end()
        yield first.start(), done


def _given_to_curl(text: str) -> Iterator[_Span]:
    """Yield the passwords in `curl -u user:password`."""
    for command in _matches(text, _CURL):
        for found in _CURL_USER.finditer(text, *command.span()):
            yield found.end(1), found.end()


def _in_values(text: str) -> Iterator[_Span]:
    """Yield the secrets in lists and objects with a JSON name that marks them as secret."""
    done = 0
    for found in _matches(text, _NESTED):
        if found.start() >= done:
            value, done = _value_at(text, found.end(), found["name"])
            yield from _leaves(text, "", value)


def _value_at(text: str, start: int, name: str) -> tuple[_Value, int]:
    """Return an object with the list or object at a place in a string, under its name, and the end of that value."""
    stack = [_Value(name)]
    level, end = -1, start
    for part in _PART.finditer(text, start, start + _LONGEST):
        end, sign, inside = part.end(), part["sign"], stack[-1]
        if sign in ("[", "{"):
            inside.add(inner := _Value())
            stack.append(inner)
        elif sign == ":":
            inside.name_last(text)
        elif sign:
            stack.pop()
        else:
            escapes = len(part["double"] or part["single"] or "")
            level = escapes if level < 0 else level
            if escapes < level:  # the end of the text that contains this value
                break
            inside.add((part.start() + escapes + 1, end if part["cut"] else end - escapes - 1))
        if not 1 < len(stack) <= _DEEPEST:
            break
    return stack[0], end


class _Value:
    """A list or an object in a string. Its strings are positions."""

    def __init__(self, name: str = "") -> None:
        self.parts: list[tuple[str, _Span | _Value]] = []
        """Each part with its name, which is empty in a list."""
        self._name = name

    def add(self, part: _Span | _Value) -> None:
        """Add a part under the last name."""
        self.parts.append((self._name, part))
        self._name = ""

    def name_last(self, text: str) -> None:
        """Use the last part as a name."""
        if self.parts and isinstance(place := self.parts[-1][1], tuple):
            self.parts.pop()
            self._name = text[slice(*place)]


def _leaves(text: str, name: str, value: _Span | _Value) -> Iterator[_Span]:
    """Yield the places of strings that are secrets by the name of their value, by the rules of `_under`."""
    if isinstance(value, tuple):
        if _is_secret(name, text[slice(*value)]):
            yield value
        return
    holding = _holding(name, [own for own, _ in value.parts if own])
    item = "" if name.endswith("tokens") else _one_of(name)
    for own, part in value.parts:
        yield from _leaves(text, item if not own else name if own in holding else own, part)


def _blank(text: str, spans: Iterable[_Span]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += text[done:start], BLANK
        done = end
    return "".join((*parts, text[done:])) if parts else text


def _lowered(text: str) -> str:
    """Return the text in lower case, with every character at its place."""
    if len(text) <= _PIECE:
        return _lower(text)
    return "".join(map(_lower, (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))))


def _lower(text: str) -> str:
    if not text.isascii():
        for other, letter in _OTHER_LETTERS:
            text = text.replace(other, letter)
    return text.lower()


def redacted(value: object, redact: Callable[[str], str] = redact) -> object:
    """Return plain JSON with every text redacted, including strings whose name in an object marks them as secret.

    Names are redacted, too; if several would become equal, the later ones get a number.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        found: dict[object, object] = {}
        for key, part in value.items():
            name = str(key)
            shown: object = key
            if not _is_field(name) and (clean := redact(name)) != name:
                shown = clean
            while shown in found:
                shown = f"{shown} {len(found) + 1}"
            found[shown] = _under(name, part, redact)
        return _without_tokens(found) if "details" in value and found != value else found
    if isinstance(value, list | tuple):
        return [redacted(part, redact) for part in value]
    return value


def _without_tokens(found: dict[Any, Any]) -> dict[Any, Any]:
    """Remove the log probabilities from a redacted reply: its tokens contain the secret in pieces."""
    details = found.get("details")
    if isinstance(details, dict) and "logprobs" in details:
        found["details"] = {name: part for name, part in details.items() if name != "logprobs"}
    return found


def _under(name: str, value: object, redact: Callable[[str], str]) -> object:
    """Redact a named value; the name may mark it as a secret (`password`), or each item of a list."""
    if isinstance(value, str):
        return BLANK if _is_secret(name, value) else redact(value)
    words = name.lower().endswith("tokens")  # such a list has the parts of one text
    if isinstance(value, list | tuple) and not words and _says_secret(name[-_NAME:]):
        return [_under(_one_of(name), part, redact) for part in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and _says_secret(name[-_NAME:]):
        return BLANK if redact(f"{name[-_NAME:]}: {value}").endswith(BLANK) else value
    if isinstance(value, dict) and (holding := _holding(name, value)):
        held = {key: _under(name, part, redact) for key, part in value.items() if key in holding}
        return redacted({**value, **held}, redact)
    return redacted(value, redact)


def _one_of(name: str) -> str:
    """Return the name that applies to an item in a list with this name."""
    return name.removesuffix("s").removesuffix("S")


def _is_secret(name: str, text: str) -> bool:
    """Return True if a string with this name is a secret."""
    if len(text) < _LEAST or text.startswith("env:"):
        return False
    return _says_secret(name[-_NAME:], "/" if _is_path(text) else "")


def _holding(name: str, names: Iterable[str]) -> Collection[str]:
    """Return the names of the secret values in an object that is named like a secret.

    These are its `value`, or all names if its own name is a plural. Exceptions: tokens are also parts of strings, and a
    schema only describes a password.
    """
    if not _says_secret(name[-_NAME:]) or "token" in (lowered := name.lower()):
        return ()
    own = {key: str(key).lower() for key in names}
    if lowered.endswith("s") and not lowered.endswith("credentials") and _SCHEMA_NAMES.isdisjoint(own.values()):
        return own
    return [key for key, low in own.items() if low in _VALUE_NAMES]


@lru_cache(1024)
def _says_secret(name: str, before: str = "") -> bool:
    """Return True if the name marks its value as a secret. `before`: the start of the value."""
    return not redact(f"{name}: '{before}some=thing'").endswith("thing'")


# -- known secrets -------------------------------------------------------------------------------------------------

_KNOWN_AT_MOST = 200
_known: dict[str, tuple[str, ...]] = {}
"""Values given to this process as secrets, each with all ways to write it, in the order in which they were given."""


def know(secret: str) -> None:
    """Register a value as a secret for the life of the process: results and errors are journaled without it.

    Short words are no secrets: `ollama`, as the key of a server that needs none, may well be part of a reply.
    """
    if secret in _known or not _telling(secret):
        return
    if len(_known) >= _KNOWN_AT_MOST:
        del _known[next(iter(_known))]
    _known[secret] = forms_of(secret)


def _telling(secret: str) -> bool:
    """Return True if a value is unlikely to occur in a string by chance."""
    return len(secret) >= 16 or (len(secret) >= 8 and any(sign.isdigit() for sign in secret))


def forms_of(secret: str) -> tuple[str, ...]:
    """Return the ways to write a secret: verbatim, as in JSON, Python, addresses and hex digits, and in base64.

    In base64 its form depends on the preceding text: there are three forms, without the characters at both ends that
    depend on neighbouring text.
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
    """Return the text with every known secret blanked, in whichever way it is written."""
    for forms in sorted(_known.values(), key=lambda forms: -len(forms[0])):  # one may be a part of another
        for form in forms:
            if form in text:
                text = text.replace(form, BLANK)
    return text


class KnownScreen:
    """Blanks known secrets in a text that arrives in pieces: what may be the beginning of one is held back.

    It holds at most twice the characters of the longest way to write a known secret.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown after another piece."""
        if not _known:
            return self.rest() + piece
        text, known = self._held + piece, [form for forms in _known.values() for form in forms]
        begins = len(text) - max(_begun(text, form) for form in known)
        whole = [text.find(form, max(0, begins - len(form) + 1), begins + len(form) - 1) for form in known]
        begins = min([begins, *(at for at in whole if at >= 0)])  # one that is whole is not cut
        self._held = text[begins:]
        return without_known(text[:begins])

    def rest(self) -> str:
        """Return what is held back, at the end of the text."""
        found, self._held = self._held, ""
        return without_known(found)


def _begun(text: str, form: str) -> int:
    """Return the number of characters at the end of a text that are the beginning of a secret, without all of it."""
    at = text.find(form[:1], max(0, len(text) - len(form) + 1))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[:1], at + 1)
    return len(text) - at if at >= 0 else 0


def without_known_in(value: object) -> object:
    """Blank known secrets in all strings of plain JSON; return the value itself if it has none."""
    if not _known:
        return value
    if isinstance(value, str):
        return without_known(value)
    if isinstance(value, dict):
        pairs = [(without_known(str(key)), without_known_in(part)) for key, part in value.items()]
        changed = any(a is not b or k != key for (k, a), (key, b) in zip(pairs, value.items(), strict=True))
        return _without_tokens(dict(pairs)) if changed else value
    if isinstance(value, list):
        parts = [without_known_in(part) for part in value]
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value


ENV = "env:"


def looked_up(given: str) -> str | None:
    """Return the value, for `env:NAME` the one in the environment; None if the environment does not have it."""
    if not given.startswith(ENV):
        return given
    found = os.environ.get(given.removeprefix(ENV)) or None
    if found is not None:
        know(found.strip())
    return found


def without(words: str, secrets: tuple[str, ...]) -> str:
    """Return an error message without these secrets."""
    for secret in secrets:
        if len(secret) >= 6:
            for form in forms_of(secret):
                words = words.replace(form, "***")
    return words
