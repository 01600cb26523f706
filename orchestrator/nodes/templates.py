"""Prompts as text with `{names}`: plain substitution of named values, and nothing else.

A placeholder has no attribute, index, conversion or format, an inserted value is never read as a template, and a
placeholder without a value is an error when the node is built. `{{` and `}}` are literal braces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from string import Formatter
from typing import Any

from pydantic import AfterValidator, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from orchestrator.tools.result import as_text

_formatter = Formatter()


def placeholders(template: str) -> frozenset[str]:
    """Return the names in a template's placeholders.

    Raises:
        ValueError: a brace is not closed, or a placeholder is not a plain name.
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
                f"prompt {template!r}: a placeholder must be a plain name, such as {{question}};"
                f" write '{{{{' and '}}}}' for braces"
            )
        names.add(name)
    return frozenset(names)


def check(template: str, allowed: Collection[str]) -> str:
    """Return the template, if all its names are among `allowed`.

    Raises:
        ValueError: the template contains another name, or cannot be read.
    """
    unknown = sorted(placeholders(template).difference(allowed))
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in sorted(allowed)) or "none"
        raise ValueError(f"prompt {template!r}: nothing fills {{{unknown[0]}}}; placeholders here: {known}")
    return template


def filled_by(*names: str) -> AfterValidator:
    """Validate a prompt field: `Annotated[str, filled_by("question")]` refuses any other placeholder."""
    return AfterValidator(lambda template: check(template, names))


def fill(template: str, **values: object) -> str:
    """Return the template's text with its placeholders replaced by `str(value)`."""
    text: list[str] = []
    for literal, name, _, _ in _formatter.parse(template):
        text.append(literal)
        if name is not None:
            text.append(str(values[name]))
    return "".join(text)


_anything: TypeAdapter[Any] = TypeAdapter(Any)


def plain(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values as plain JSON."""
    found: dict[str, object] = _anything.dump_python(dict(values), mode="json", fallback=_of_its_class)
    return found


def text_of(value: object) -> str:
    """Return a value of the state as models read it: a text unchanged, any other value as JSON."""
    return as_text(plain({"": value})[""])


def _of_its_class(value: object) -> object:
    """Return a value that only its class, or its field, can write as JSON; as text if its class cannot."""
    try:
        return TypeAdapter(type(value)).dump_python(value, mode="json")
    except PydanticSchemaGenerationError:
        return str(value)
