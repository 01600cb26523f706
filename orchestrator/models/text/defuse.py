"""Texts from outside made harmless: a model that repeats what a tool or a user wrote must not make a call by it.

Where such a text holds call syntax, a broken bar is put into it: `<|plugin|>` becomes `<¦plugin¦>`. The bar is
visible on purpose. People who read the conversation see what was there, and a model that repeats the text repeats
the bar, while characters without width are what models and tokenizers lose first, and the call would be back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MARK = "¦"

_u = r"\\{1,8}u"
"""How JSON begins the number of a character, also inside of a text inside of a text."""
_bar = rf"(?:\||{_u}007c)"
# Also as JSON and HTML escape it: a model that is shown such a page or file says it without the escapes.
_token = re.compile(rf"(<|{_u}003c|&lt;){_bar}([^|<>\n]{{0,80}}?){_bar}(?=>|{_u}003e|&gt;)", re.IGNORECASE)
_line = re.compile(
    r"^([^\w\n]{0,20}(?:Action(?:[ \t]{1,8}Input)?|Observation)(?:[ \t]{0,8}\d{1,6})?[ \t]{0,8}(?:\*\*)?[ \t]{0,8})"
    r"([:：])",
    re.IGNORECASE | re.MULTILINE,
)
_short = {one: r"\\{1,8}" + way for one, way in zip('"/\b\f\n\r\t', '"/bfnrt', strict=True)} | {"\\": r"\\{1,8}"}


def tokens_broken(text: str) -> str:
    """Without tokens such as `<|plugin|>`, which also a server may take for its own."""
    return _token.sub(rf"\1{MARK}\2{MARK}", text)


def names_broken(text: str, names: Iterable[str]) -> str:
    """Without JSON values that are the name of a tool: every call written in JSON has one, and no call is without."""
    known = tuple(names)
    return _values(known).sub(rf"\1{MARK}", text) if known else text


def lines_broken(text: str, names: Iterable[str]) -> str:
    """Without `Action:` and `Observation:` at the beginning of lines, and without `action: tool` anywhere."""
    known = tuple(names)
    text = _line.sub(rf"\1{MARK}\2", text)
    return _actions(known).sub(rf"\1{MARK}\2", text) if known else text


def brackets_broken(text: str, names: Iterable[str]) -> str:
    """Without `tool[`, which is an action if it is alone or follows another one."""
    known = tuple(names)
    return _opened(known).sub(rf"\1{MARK}", text) if known else text


@lru_cache(maxsize=64)
def _values(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf'(:\s*\\*"(?:{"|".join(map(_escaped, names))}))(?=\\*")')


@lru_cache(maxsize=64)
def _actions(names: tuple[str, ...]) -> re.Pattern[str]:
    any_of = "|".join(map(re.escape, names))
    colon = r"[ \t]{0,8}(?:\*\*)?[ \t]{0,8})([:：])"
    return re.compile(rf"(action(?:[ \t]{{0,8}}\d{{1,6}})?{colon}(?=[\s*]{{0,20}}(?:{any_of}))", re.IGNORECASE)


@lru_cache(maxsize=64)
def _opened(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"((?:{'|'.join(map(re.escape, names))}))(?=[ \t]{{0,8}}\[)", re.IGNORECASE)


def _escaped(name: str) -> str:
    """A pattern of all the ways in which JSON can write a name; ASCII names in upper and lower case."""
    written = "".join(map(_character, name))
    return f"(?ai:{written})" if name.isascii() else written


def _character(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    code = "".join(f"{_u}{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
    ways = [re.escape(one), f"(?i:{code})", *([_short[one]] if one in _short else [])]
    if one.isascii() and one.isalpha():
        ways.append(f"(?i:{code[:-4]}{ord(one.swapcase()):04x})")
    return f"(?:{'|'.join(ways)})"
