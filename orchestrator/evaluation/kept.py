"""Results of evaluations in the memory of their store, by name: there the page and the web API read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InvalidValue
from orchestrator.json import canonical
from orchestrator.tasks import away
from orchestrator.values import check_name

if TYPE_CHECKING:
    from orchestrator.executor import Executor

NAMESPACE = ("evaluations",)
"""The namespace of results in a store's memory."""
_LARGEST = 900_000
"""Bytes of a result that is kept: a value in memory has 1 MiB at most."""


def checked_name(name: str) -> str:
    """Return the name of an evaluation, if it is valid, also in the address of its page.

    Raises:
        InvalidValue: it is not.
    """
    if "/" in check_name(name, "name") or name in (".", ".."):
        raise InvalidValue(f"name {name!r}: the name of an evaluation has no '/', and is not '.' or '..'", where="name")
    return name


async def keep(executor: Executor, name: str, data: dict[str, Any], cases: Sequence[str]) -> None:
    """Keep a result. If it is too large, some of its cases are left out.

    Args:
        executor: an executor of the store.
        name: the evaluation's name.
        data: the result as plain JSON.
        cases: the fields that list cases, which may be shortened.
    """
    await executor.memory.put(NAMESPACE, name, await away(lambda: _shortened(data, cases), data))


def _shortened(data: dict[str, Any], cases: Sequence[str]) -> dict[str, Any]:
    while any(data[one] for one in cases) and len(canonical(data).encode()) > _LARGEST:
        data |= {one: data[one][: len(data[one]) // 2] for one in cases}
    return data
