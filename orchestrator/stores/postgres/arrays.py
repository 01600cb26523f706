"""Columns of many changes as parameters of one statement, which `unnest` turns into rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = object
Kind: TypeAlias = str
"""`bigint`, `double precision`, `boolean`, `text` or `bytea`."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as a table of a statement, with a column `n` that counts them from 1 on."""

    sql: str
    values: tuple[object, ...]


def table(name: str, columns: Sequence[tuple[str, Kind]], rows: Iterable[Sequence[Value]]) -> Table:
    """Rows as a table of this name, to stand behind FROM."""
    kept = [*zip(*rows, strict=True)] or [()] * len(columns)
    values = [_array(kind, column) for (_, kind), column in zip(columns, kept, strict=True)]
    marks = ", ".join(f"%{'b' if kind in ('text', 'bytea') else 's'}::{kind}[]" for _, kind in columns)
    names = ", ".join(column for column, _ in columns)
    return Table(f"unnest({marks}) WITH ORDINALITY AS {name} ({names}, n)", tuple(values))


def _array(kind: Kind, values: Sequence[Value]) -> object:
    if kind in ("text", "bytea"):
        return [*values]
    # As text: psycopg would choose the type by the values, and each type makes another statement to be prepared.
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"
