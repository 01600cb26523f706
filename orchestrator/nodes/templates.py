"""Prompts as text with `{names}`: plain substitution of named values, and nothing else.

There is no attribute, index, conversion or format in a placeholder, a value that is put in is never read as a
template, and a placeholder that nothing fills is an error when the node is built. `{{` and `}}` are braces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from string import Formatter
from typing import Any

from pydantic import AfterValidator, TypeAdapter

_formatter = Formatter()


def placeholders(template: str) -> frozenset[str]:
    """The names that a template wants.

    Raises:
        ValueError: a brace is not closed, or a placeholder is more than a name.
    """
    names: set[str] = set()
    try:
        parts = list(_formatter.parse(template))
    except ValueError as error:
        raise ValueError(f"prompt {template!r}: {error}; write '{{{{' and '}}}}' for braces") from None
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise ValueError(
                f"prompt {template!r}: a placeholder is a plain name such as {{question}};"
                f" write '{{{{' and '}}}}' for braces"
            )
        names.add(name)
    return frozenset(names)


def check(template: str, allowed: Collection[str]) -> str:
    """The template, if all that it wants is among `allowed`.

    Raises:
        ValueError: it wants something else, or cannot be read.
    """
    unknown = sorted(placeholders(template).difference(allowed))
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in sorted(allowed)) or "none"
        raise ValueError(f"prompt {template!r}: nothing fills {{{unknown[0]}}}; placeholders here: {known}")
    return template


def filled_by(*names: str) -> AfterValidator:
    """For a prompt's field: `Annotated[str, filled_by("question")]` refuses any other placeholder."""
    return AfterValidator(lambda template: check(template, names))


def fill(template: str, **values: object) -> str:
    """The template's text with its placeholders replaced by `str(value)`."""
    text: list[str] = []
    for literal, name, _, _ in _formatter.parse(template):
        text.append(literal)
        if name is not None:
            text.append(str(values[name]))
    return "".join(text)


_anything: TypeAdapter[Any] = TypeAdapter(Any)


def plain(values: Mapping[str, object]) -> dict[str, Any]:
    """The values as plain JSON."""
    found: dict[str, object] = _anything.dump_python(dict(values), mode="json")
    return found
