"""Who makes a request, and whether they may: what `authorize` says."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

    from orchestrator.stores.base import RunInfo


@runtime_checkable
class Named(Protocol):
    """A principal: a user object with a name."""

    @property
    def name(self) -> str: ...


Principal: TypeAlias = "str | Named"
Authorize: TypeAlias = "Callable[[Request, str, RunInfo | None], Principal | Awaitable[Principal | None] | None]"


async def name_of(authorize: Authorize | None, request: Request, action: str, run: RunInfo | None) -> str | None:
    """The name of the principal that may do this; empty if there is no `authorize`, None if it refuses.

    Raises:
        TypeError: `authorize` returned something else.
    """
    if authorize is None:
        return ""
    found = authorize(request, action, run)
    principal = await found if inspect.isawaitable(found) else found
    if principal is None or (isinstance(principal, str) and principal):
        return principal
    if isinstance(principal, Named) and isinstance(principal.name, str) and principal.name:
        return principal.name
    raise TypeError("authorize() must return a principal with a name that is not empty, a text, or None")


def refused(action: str) -> HttpProblem:
    """The problem of a request that `authorize` refuses."""
    return HttpProblem(403, "not-authorized", f"you may not do this here: {action}")
