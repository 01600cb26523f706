"""Docstrings of functions and their parameters, in Google, NumPy or Sphinx style, and the types that they name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from orchestrator.errors import GraphError
from orchestrator.graph.text.types import parse_type

_STYLES = ("google", "numpy", "sphinx")
_TIGHT = re.compile(
    r"(?<=[^\n])\n(?=(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Attributes"
    r"|Returns?|Yields?|Raises|Examples?|Notes?|Warnings?):[ \t]*\n[ \t]+\S)"
)
"""Start of a section directly after another line: the parser needs a blank line between them."""
_MARK = re.compile(r"[^ -~\n]|\n[ :.]|^[:.]|:(?:\n|$)|:param|---|```|\n\n\n")
"""Signs of a docstring of another form."""
_PARAMETER = re.compile(r"    ([A-Za-z_][A-Za-z0-9_]*): ([!-~](?:[ -~]*[!-~])?)")
_SYNONYMS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict", "array": "list"}
_LONGEST = 500
"""Characters of a type that is read; a longer one is ignored."""
_WORDS = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Documented:
    """A docstring, taken apart."""

    text: str = ""
    """All that stands before its sections."""
    parameters: Mapping[str, ParameterDoc] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParameterDoc:
    """Description of a parameter in a docstring."""

    description: str = ""
    type: str = ""
    """As it is written there; empty if it is not."""


def read_docstring(doc: str | None) -> Documented:
    """Take a docstring apart, whatever its style."""
    text = inspect.cleandoc(doc or "")
    if not any(mark in text for mark in (":\n", ":param", "---")):
        return Documented(" ".join(text.split()) if "\n\n" not in text else text)  # the common case needs no parser
    return plain(text) or parsed(text)


def plain(text: str) -> Documented | None:
    """The same of a docstring that ends with one-line descriptions of parameters; None: it has another form.

    Such docstrings need no parser: it takes a tenth of a second to load.
    """
    above, section, lines = text.partition("\n\nArgs:\n")
    if not section or _MARK.search(above) or any(mark in lines for mark in (":param", "---", "```")):
        return None
    found = [_PARAMETER.fullmatch(line) for line in lines.split("\n")]
    if None in found:
        return None
    described = {one[1]: ParameterDoc(" ".join(one[2].split())) for one in found if one is not None}
    return Documented(above.strip(), described)


def parsed(text: str) -> Documented:
    """The same of any docstring, by the parser."""
    import griffe

    docstring = griffe.Docstring(_TIGHT.sub("\n\n", text))
    style, _ = griffe.infer_docstring_style(docstring)
    name: Any = style.value if style is not None and style.value in _STYLES else "google"
    sections = docstring.parse(name, warnings=False)
    found: dict[str, ParameterDoc] = {}
    texts: list[str] = []
    for section in sections:
        kind = section.kind.value
        if kind == "text" and not found:
            texts.append(str(section.value))
        elif kind in ("parameters", "other parameters"):
            for parameter in section.value:
                written = "" if parameter.annotation is None else str(parameter.annotation)
                words = " ".join(str(parameter.description or "").split())
                found[str(parameter.name).lstrip("*")] = ParameterDoc(words, written.strip())
    return Documented("\n\n".join(texts).strip(), found)


def written_type(text: str) -> Any:
    """The type that a docstring names, None if it is not one of the plain ones."""
    if len(text) > _LONGEST:
        return None
    text = re.sub(r",?\s*\boptional\b(?!\[)|,?\s*\bdefaults?\b.*$", "", text, flags=re.IGNORECASE).strip().strip("`")
    optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text)
    if optional:
        inner = written_type(optional[1])
        return None if inner is None else Union[inner, None]  # noqa: UP007  works for every kind of inner type
    choices = re.fullmatch(r"(?:typing\.)?Literal\[(.*)\]|\{(.*)\}|(['\"].*)", text, re.DOTALL)
    if choices:  # the parser takes away the braces in NumPy's style
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
    """`Literal` type of the texts and numbers that are written there; None if they are something else."""
    try:
        choices = ast.literal_eval(f"({text},)")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    plain = all(one is None or isinstance(one, str | int) for one in choices)
    return Literal[choices] if plain else None
