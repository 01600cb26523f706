"""Find the tests that start processes: in their code, or in that of the functions and fixtures that they use.

A test that starts a process takes long, and longer where the machine is busy; so does one that stops a run at each of
its writes. Such tests run with `--full`, but for one of each promise (`tests/conftest.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

STARTERS = ("subprocess", "multiprocessing", "tests.support.programs", "tests.support.hosts", "tests.support.tmux")
"""Modules whose functions and classes start processes, and what is below them."""
NAMES = frozenset({"assert_kill_safe", "assert_crash_safe", "assert_disk_safe", "posix_spawn", "Popen"})
"""Names of what starts processes, or stops a run at every write."""
SHELL = frozenset({"begin", "terminal", "sh", "process", "typed", "pasted"})
"""Methods of a `Shell` that start processes; by itself it runs commands in the process of the tests."""


def starts_processes(item: pytest.Item) -> bool:
    """Return True if a test starts processes, or stops a run at every write."""
    if not isinstance(item, pytest.Function):
        return False
    fixtures = [found[-1].func for found in item._fixtureinfo.name2fixturedefs.values() if found]
    return any(_starts(inspect.unwrap(one)) for one in (item.function, *fixtures))


@cache
def _starts(function: Callable[..., Any]) -> bool:
    """Return True if a function, or any code of the tests that it uses, starts processes."""
    seen: set[object] = set()
    ahead: list[object] = [function]
    while ahead:
        one = ahead.pop()
        if not isinstance(one, FunctionType | type) or one in seen or not one.__module__.startswith("tests."):
            continue
        seen.add(one)
        if one.__module__ == "tests.support.shell":
            continue  # which of its methods start processes is known
        for code, known in _codes(one):
            names = _names(code)
            starting = NAMES | SHELL if "Shell" in known else NAMES
            if not starting.isdisjoint(names) or any(_is_starter(known.get(name)) for name in names):
                return True
            ahead += [known[name] for name in names if name in known]
    return False


def _codes(one: object) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """Yield the code of a function, or of the methods of a class, with its global names."""
    if isinstance(one, FunctionType):
        found = inspect.unwrap(one)
        if isinstance(found, FunctionType):
            yield found.__code__, found.__globals__
    elif isinstance(one, type):
        for method in vars(one).values():
            if isinstance(method, FunctionType):
                yield method.__code__, method.__globals__


@cache
def _names(code: CodeType) -> frozenset[str]:
    """Return all names that a code object uses, with those of the functions in it."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*inner)


def _is_starter(value: object) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(value, ModuleType | FunctionType | type) or not isinstance(name, str):
        return False
    return any(name == one or name.startswith(f"{one}.") for one in STARTERS)
