"""Settings of an application of the API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from orchestrator.graph.limits import Limits
    from orchestrator.web.principals import Authorize

Risk: TypeAlias = Literal["none", "read", "write", "dangerous"]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names of this machine's loopback interface in a Host header."""
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an application. Times are in seconds."""

    read_only: bool = False
    authorize: Authorize | None = None
    prefix: str = ""
    hosts: frozenset[str] | None = LOOPBACK
    """Names that a Host header may have: `name:port`, or `name` for any port; None: anything."""
    addresses: bool = False
    """True if a Host header may also be any IP address: no foreign page can have one of this machine as its name."""
    origins: frozenset[str] = frozenset()
    """Origins of further pages that may send requests (CORS), as browsers write them; see `guard.origins_of`."""
    token: str | None = None
    """Token that each request must bring; None: not required."""
    cookie: str = "orchestrator"
    """The name of the cookie that holds the id of a browser's session."""
    session: float = 43_200.0
    """Length of a session; after it, a browser needs the token again."""
    approve: Risk | None = None
    """The highest risk that a request may have approved without asking; None: requests cannot use `approve`."""
    limits: Limits | None = None
    """The highest limits that a request may set, by the fields that are set here. Others can only be lowered."""
    refs: Callable[[str, str], Mapping[str, object] | None] | None = None
    """References to the code of a new run, by its id and graph name; None, also as result: the executor's."""
    currency: str = "USD"
    """The currency of the prices, and so of all costs."""
    save_graphs: Path | None = None
    """The folder into which pages save graphs; None: saving is disabled."""
    sources: bool = False
    """True if the source of functions behind nodes may be shown."""
    scratch: bool = False
    """True if its runs are tries, which are lost with the server."""
    heartbeat: float = 15.0
    """Seconds between comments on an idle stream."""
    patience: float = 30.0
    """Seconds for which a reader of a stream may read nothing, and a body may take; then the connection is closed."""
    recheck: float = 15.0
    """Seconds between calls of `authorize` for an open stream."""
    streams: int = 256
    """Maximum number of open streams."""
    wait: float = 60.0
    """Maximum of seconds that a request waits for a run; then it returns the run's current state."""
    poll: float = 1.0
    """Seconds between polls of the store for questions that were opened or closed."""

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"prefix={self.prefix!r}: use a path without a slash at its end, such as '/agents'")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise ValueError("the token is not usable: take 16 to 200 letters, digits and signs of '._~-'")
