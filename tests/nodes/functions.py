"""Functions that know nothing of graphs, for `Call` to name."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Mapping
from typing import Any

import anyio.lowlevel


def double(n: int) -> int:
    return 2 * n


async def later(n: int, word: str = "") -> str:
    await anyio.lowlevel.checkpoint()
    return f"{word}{n}"


def hidden(n: int) -> Awaitable[str]:
    """Does not show that it gives a coroutine."""
    return later(n, "hidden ")


def update(n: int) -> Mapping[str, object]:
    return {"n": n + 1, "word": "updated"}


def nothing() -> None:
    pass


def thread() -> int:
    return threading.get_ident()


def broken(n: int) -> None:
    raise LookupError(f"no {n}")


class Shop:
    @staticmethod
    def price(n: int) -> int:
        return 10 * n

    async def __call__(self, n: int) -> int:
        return n + 100


shop: Any = Shop()
number = 5
