"""Make servers of uvicorn stop at once.

uvicorn polls: ten times a second it checks whether it must stop, and as often whether all connections have ended. The
tests stop hundreds of servers, and would sleep for minutes.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import uvicorn.server

SECONDS = 0.005
"""How long it sleeps here."""


class _Asyncio(ModuleType):
    """asyncio, with short sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, SECONDS))


def shorten_waits() -> None:
    """Make all servers of this process poll every few milliseconds."""
    vars(uvicorn.server)["asyncio"] = _Asyncio("asyncio")
