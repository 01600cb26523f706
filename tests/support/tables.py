"""Make each table of parameters one test: the cost of a test in pytest and xdist is more than that of most rows.

This is done for tests whose rows share everything else: they are plain functions, and their fixtures, if they
have any, belong to a module or to the session. All rows run; the failure of one names it. Where tests are selected by
their file or name, each row is a separate test.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.python import get_direct_param_fixture_func


def in_tables(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items, those of one table as one item."""
    tables: dict[object, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and _is_row(item):
            tables.setdefault((item.parent, item.originalname), []).append(item)
    left_out: set[pytest.Item] = set()
    for rows in tables.values():
        if len(rows) > 1:
            _make_table(rows)
            left_out.update(rows[1:])
    return [item for item in items if item not in left_out]


def _is_row(item: pytest.Function) -> bool:
    """Return True if a test is a row of a table, and its other fixtures, if any, are shared by tests."""
    function = item.function
    if not hasattr(item, "callspec") or item.callspec.marks or "request" in item._fixtureinfo.argnames:
        return False
    if inspect.iscoroutinefunction(function) or hasattr(function, "hypothesis"):
        return False
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():
        if name in item.callspec.params:
            if definitions[-1].func is not get_direct_param_fixture_func:
                return False
        elif any(one.scope == "function" for one in definitions):
            return False
    return True


def _make_table(rows: Sequence[pytest.Function]) -> None:
    """Make the first of the rows run all of them."""
    first = rows[0]
    first.obj = functools.partial(_run, [(row.callspec.id, row.obj, row.callspec.params) for row in rows])
    first.name = first.originalname
    first._nodeid = f"{first.parent.nodeid}::{first.name}" if first.parent else first.name


def _run(rows: Sequence[tuple[str, Any, dict[str, Any]]], /, **fixtures: Any) -> None:
    failed = []
    for name, test, values in rows:
        try:
            test(**{argument: values.get(argument, value) for argument, value in fixtures.items()})
        except Exception as error:
            error.add_note(f"in the row [{name}]")
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(rows)} rows fail", failed)
