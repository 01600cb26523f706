"""Reads docstrings of tools: the text, and descriptions and types of parameters.

The styles of Google, NumPy, Sphinx and Epytext are read as people write them: also without a summary, with bullets,
and with Markdown. Nothing in a docstring is evaluated.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias, Union

from msgspec import Struct

from orchestrator.errors import GraphError
from orchestrator.graph.text.types import parse_type

_SIGNS = re.compile(r":\**[ \t]*$|^[ \t]*(?:[:@][a-z]|---|===|#)", re.MULTILINE)
"""Signs of a docstring with sections."""
_SECTIONS = {
    **dict.fromkeys(("args", "arguments", "params", "parameters", "inputs"), True),
    **dict.fromkeys(("keyword args", "keyword arguments", "other parameters"), True),
    **dict.fromkeys(("return", "returns", "yield", "yields", "raise", "raises", "attributes"), False),
}
"""Sections outside the text: True for those of parameters. The others are not shown to models."""
_HEADING = re.compile(r"(#+ +)?\**([A-Za-z]+(?: [A-Za-z]+)?)(:?)\**(:?)")
_RULE = re.compile(r"[-=]{3,}")
_FIELD = re.compile(
    r"([:@])(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|throws|yields?)\b(.*)"
)
"""A field of Sphinx, such as `:param str name: text`, or of Epytext, such as `@param name: text`."""
_NAMES = re.compile(r"(?:[-*+•][ \t]+)?[`*]{0,3}([^\W\d]\w*(?:, *\*{0,2}[^\W\d]\w*)*)[`*]{0,2}")
_COLON = re.compile(r"[ \t]*:(?!//)\**[ \t]*|[ \t]+(?:--?|–|—)[ \t]+")
"""What separates a parameter from its description."""
_LIST = re.compile(r"\*{0,2}[^\W\d]\w*(?:[ \t]*,[ \t]*\*{0,2}[^\W\d]\w*)*")
_SYNONYMS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict", "array": "list"}
_LONGEST = 500
"""Maximum length of a type in a docstring; a longer one is ignored."""
_WORDS = re.compile(r"[^\W\d][\w.]*")


class Documented(Struct, frozen=True):
    """A parsed docstring."""

    text: str = ""
    """Text outside the sections about parameters, results and errors."""
    parameters: Mapping[str, ParameterDoc] = {}


class ParameterDoc(Struct, frozen=True):
    """Description of a parameter in a docstring."""

    description: str = ""
    type: str = ""
    """The type as written there; empty if it is not given."""


_Entry: TypeAlias = tuple[tuple[str, ...], str, str]
"""Names of parameters, their type, and the start of their description."""
_Found: TypeAlias = dict[str, list[str]]
"""By name of the parameter its type and the lines of its description."""


def read_docstring(doc: str | None) -> Documented:
    """Parse a docstring of any style."""
    text = inspect.cleandoc(doc or "")
    if not _SIGNS.search(text):
        return Documented(" ".join(text.split()) if "\n\n" not in text else text)
    lines = [line.rstrip() for line in text.split("\n")]
    outside: list[str] = []
    found: _Found = {}
    at = 0
    while at < len(lines):
        kind, numpy = _heading(lines, at)
        written = _FIELD.fullmatch(lines[at].strip())
        if kind is not None:
            indent = _indent(lines[at])
            at = _section(lines, at + 1 + numpy, indent, numpy, found if kind else {})
        elif written is not None:
            at = _field(written, lines, at, found)
        else:
            outside.append(lines[at])
            at += 1
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(outside)).strip()
    return Documented(text, {name: _parameter(*one) for name, one in found.items()})


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _not_blank(lines: Sequence[str], at: int) -> str:
    """Return the first line from `at` on that is not empty; empty if there is none."""
    return next((lines[place] for place in range(at, len(lines)) if lines[place]), "")


def _heading(lines: Sequence[str], at: int) -> tuple[bool | None, bool]:
    """Return the kind of section that starts at a line (see `_SECTIONS`; None for none), and if it is underlined."""
    words = _HEADING.fullmatch(lines[at].strip())
    kind = None if words is None else _SECTIONS.get(words[2].lower())
    if words is None or kind is None:
        return None, False
    if at + 1 < len(lines) and _RULE.fullmatch(lines[at + 1].strip()):
        return kind, True
    below = _not_blank(lines, at + 1)
    inside = _entry(below) is not None or (not kind and _indent(below) > _indent(lines[at]))
    return kind if inside and (words[1] or words[3] or words[4]) else None, False


def _section(lines: Sequence[str], at: int, indent: int, numpy: bool, found: _Found) -> int:
    """Read the entries of a section, and return the place of its end.

    Args:
        indent: indentation of the heading; entries may be at the same, as in NumPy's style.
    """
    inner = max(indent, _indent(_not_blank(lines, at)))
    names: tuple[str, ...] = ()
    blank = False
    while at < len(lines):
        line, deep = lines[at], _indent(lines[at])
        entry = (_listed(line) if numpy else _entry(line)) if line and deep == inner else None
        if line and deep < inner:
            break
        if line and deep == indent and ((blank and entry is None) or _starts(lines, at)):
            break
        if entry is not None:
            names, written, said = entry
            found.update((name, [written, said]) for name in names)
        elif line:
            for name in names:
                found[name].append(line.strip())
        blank = not line
        at += 1
    return at


def _starts(lines: Sequence[str], at: int) -> bool:
    """Return True if a section, of any name, starts at a line."""
    underlined = at + 1 < len(lines) and _RULE.fullmatch(lines[at + 1].strip())
    return bool(underlined) or _heading(lines, at)[0] is not None


def _entry(line: str) -> _Entry | None:
    """Parse a line such as `name (type): text`; None if it has another form."""
    text = line.strip()
    names = _NAMES.match(text)
    if names is None:
        return None
    rest, written = text[names.end() :], ""
    if rest.lstrip().startswith("("):
        rest = rest.lstrip()
        depths = accumulate((letter in "([{") - (letter in ")]}") for letter in rest)
        end = next((place for place, depth in enumerate(depths) if not depth), len(rest))
        written, rest = rest[1:end].strip(), rest[end + 1 :]
    colon = _COLON.match(rest)
    return None if colon is None else (_split(names[1]), written, rest[colon.end() :])


def _listed(line: str) -> _Entry | None:
    """Parse a line such as `one, other : type`; None if it has another form."""
    names, _, written = line.strip().partition(":")
    if not _LIST.fullmatch(names.strip()):
        return None
    return _split(names), written.strip(), ""


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip(" \t*") for name in names.split(","))


def _field(written: re.Match[str], lines: Sequence[str], at: int, found: _Found) -> int:
    """Read a field of Sphinx or Epytext with its further lines, and return the place of its end."""
    end = at + 1
    while end < len(lines) and _indent(lines[end]) > _indent(lines[at]):
        end += 1
    said = " ".join((written[3], *lines[at + 1 : end]))
    head, colon, text = said.partition(":")
    if not colon or (written[1] == "@" and len(head.split()) > 1):  # `@param name text`
        head, _, text = said.strip().partition(" ")
    words = head.replace("*", "").split()
    if not words or written[2] not in ("param", "parameter", "arg", "argument", "key", "keyword", "type"):
        return end
    entry = found.setdefault(words[-1], [""])
    if written[2] == "type":
        entry[0] = text.strip()
    else:
        entry[0] = " ".join(words[:-1]) or entry[0]
        entry.append(text)
    return end


def _parameter(written: str, *lines: str) -> ParameterDoc:
    description = " ".join(" ".join(lines).split())
    if written and not description and written_type(written) is None:  # a description in the place of the type
        return ParameterDoc(written)
    return ParameterDoc(description, written)


def written_type(text: str) -> Any:
    """Return the type that a docstring names; None if it is not a type that graph files can name."""
    if len(text) > _LONGEST:
        return None
    text = re.sub(r",?\s*\boptional\b(?!\[)|,?\s*\bdefaults?\b.*$", "", text, flags=re.IGNORECASE).strip().strip("`")
    optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text)
    if optional:
        inner = written_type(optional[1])
        return None if inner is None else Union[inner, None]  # noqa: UP007  works for every kind of inner type
    choices = re.fullmatch(r"(?:typing\.)?Literal\[(.*)\]|\{(.*)\}|(['\"].*)", text, re.DOTALL)
    if choices:  # the parser removes the braces in NumPy's style
        return _one_of(choices[1] or choices[2] or choices[3] or "")
    text = re.sub(r"\s+or\s+", " | ", text)
    text = re.sub(r"\b(list|set|array) of (\w+?)s?\b", r"\1[\2]", text)
    text = _WORDS.sub(lambda word: _SYNONYMS.get(word[0].lower(), word[0].removeprefix("typing.")), text)
    text = re.sub(r"\b(List|Dict|Set)\b", lambda word: word[0].lower(), text)
    text = re.sub(r"\bAny\b", "any", text)
    try:
        return parse_type(text)
    except GraphError:
        return None


def _one_of(text: str) -> object:
    """Return the `Literal` type of the listed strings and numbers; None if there is anything else."""
    try:
        choices = ast.literal_eval(f"({text},)")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    plain = all(one is None or isinstance(one, str | int) for one in choices)
    return Literal[choices] if plain else None
