"""What is wrong with a text that is no YAML: the line first, then a suggested fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

_FIXES = (
    ("character '\\t'", "indent with spaces, YAML takes no tabs"),
    ("a constructor for the tag", "tags are not read: remove it, and write plain values"),
    ("undefined alias", "an alias *name refers to an anchor &name before it; quote a text that begins with *"),
    ("duplicate anchor", "give the anchors different names"),
    ("unexpected end of stream", "close the quote"),
    ("found unexpected document", "close the quote"),
    ("another document", "a file holds one graph: remove the line ---"),
    ("got '['", 'quote a type with brackets, as in "list[str]"'),
    ("got '<stream end>'", "close the bracket"),
    ("got '<scalar>'", "close the bracket, or put a comma between the entries"),
    ("got ':'", "quote a text with a colon in it"),
    ("mapping values are not allowed", "quote a text with ': ' in it; edges are a block of text, 'edges: |'"),
    ("expected <block end>", "indent the entries of one block by the same number of spaces"),
    ("could not find expected ':'", "write 'key: value', or close the quote or the bracket before this line"),
    ("cannot start any token", "quote a text that begins with this character"),
    ("special characters are not allowed", "remove the character"),
    ("expected alphabetic or numeric character", "quote a text that begins with & or *"),
)
"""Part of what YAML says -> what to do; the first that fits."""


def yaml_fault(error: yaml.YAMLError, text: str) -> str:
    """Say in one line where a text is no YAML, why, and what to do.

    Args:
        error: the error of the parser.
        text: the text.

    Returns:
        The message, which begins with the line.
    """
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    opened = getattr(error, "context", None) in ("while parsing a flow mapping", "while parsing a flow sequence")
    quoted = getattr(error, "context", None) == "while scanning a quoted scalar"
    if context is not None and (opened or quoted) and (mark is None or mark.line > context.line):
        mark = context  # what is not closed began here
    fix = next((what for part, what in _FIXES if part in problem), "")
    if mark is not None:
        where = f"line {mark.line + 1}, column {mark.column + 1}: "
    else:
        position = getattr(error, "position", None)
        where = f"line {text.count(chr(10), 0, position) + 1}: " if isinstance(position, int) else ""
    return f"{where}{problem.removeprefix('but ')}{fix and f'; {fix}'}"
