"""What every model around other models has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Any, Self

from orchestrator.models.base import Model, gives_pieces


class Wrapping(ABC):
    """A model around others says of itself what the first of them says, and closes all of them."""

    @property
    @abstractmethod
    def members(self) -> tuple[Model, ...]:
        """The models that may be asked, the first one first."""

    @property
    def retry(self) -> Any:
        """What the model inside says about retries; None if it says nothing."""
        return getattr(self.members[0], "retry", None)

    @property
    def price(self) -> Any:
        """What the model inside says that it costs; None if it says nothing."""
        return getattr(self.members[0], "price", None)

    @property
    def streams(self) -> bool:
        """Whether the model inside gives its replies in pieces."""
        return gives_pieces(self.members[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all `members` that can be closed."""
        async with AsyncExitStack() as closing:  # all of them, also when one fails to
            for member in self.members:
                close = getattr(member, "aclose", None)
                if close is not None:
                    closing.push_async_callback(close)
