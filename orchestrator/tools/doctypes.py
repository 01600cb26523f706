"""Types as docstrings write them: `int, optional`, `list of str`, `{'a', 'b'}`. Nothing of them is evaluated."""

from __future__ import annotations

import ast
import re
from typing import Any, Literal, Union

from orchestrator.errors import GraphError
from orchestrator.graph.text.types import parse_type

_SYNONYMS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict", "array": "list"}
_LONGEST = 500
"""Characters of a type that is read; a longer one says nothing that a schema could say."""
_WORDS = re.compile(r"[A-Za-z_][\w.]*")


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
    """One of the texts, numbers and so on that stand there as literals; None if they are something else."""
    try:
        choices = ast.literal_eval(f"({text},)")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    plain = all(one is None or isinstance(one, str | int) for one in choices)
    return Literal[choices] if plain else None
