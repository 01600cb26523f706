"""Sessions of browsers: each has an id of its own in a cookie, and an end.

A browser sends a cookie to every port of its host. So the cookie is not the token, and other servers of the host learn
no more than an id that ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from hashlib import sha256

from starlette.datastructures import Headers

SESSION = "orchestrator.session"
"""Key in the scope of a request that was admitted because of its session: the ids that it brought."""
_MOST = 10_000


class Sessions:
    """The open sessions of a server, in memory: they end with it.

    Args:
        seconds: how long a session lasts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[bytes, float] = {}
        """Digest of each session's id -> when it ends, by `time.monotonic`. Found by digest, so that the time of a
        look-up tells nothing of an id."""

    def open(self) -> str:
        """Begin a session; returns its id."""
        self._drop_ended()
        while len(self._ends) >= _MOST:
            del self._ends[next(iter(self._ends))]
        made = secrets.token_urlsafe(32)
        self._ends[_digest(made)] = time.monotonic() + self._seconds
        return made

    def has_any(self, ids: Iterable[str]) -> bool:
        """Whether one of these is the id of an open session."""
        self._drop_ended()
        return any(_digest(one) in self._ends for one in ids)

    def close(self, ids: Iterable[str]) -> int:
        """End the sessions of these ids; returns how many there were."""
        return sum(self._ends.pop(_digest(one), None) is not None for one in ids)

    def _drop_ended(self) -> None:
        now = time.monotonic()
        while self._ends and self._ends[first := next(iter(self._ends))] <= now:
            del self._ends[first]


def _digest(given: str) -> bytes:
    return sha256(given.encode("utf-8", "surrogatepass")).digest()


def cookies(headers: Headers, name: str) -> list[str]:
    """All cookies of a name: another server of this host may have set one, too, which a browser sends along."""
    pairs = (part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    return [value.strip('"') for key, _, value in pairs if key == name]
