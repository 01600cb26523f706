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
    """True if a Host header may also name any IP address: no foreign page can have one of this machine as its name."""
    token: str | None = None
    """Token that each request must bring; None: none."""
    cookie: str = "orchestrator"
    """The name of the cookie that holds the id of a browser's session."""
    session: float = 43_200.0
    """Length of a session; after it, a browser needs the token again."""
    approve: Risk | None = None
    """The highest risk that a request may have approved without asking; None: requests cannot use `approve`."""
    limits: Limits | None = None
    """The highest limits that a request may set, by the fields that are set here. Others can only be lowered."""
    refs: Callable[[str, str], Mapping[str, object] | None] | None = None
    """References to the code of a new run, by its id and the name of its graph; None, or what it returns is None: those
    of the executor."""
    save_graphs: Path | None = None
    """The folder into which pages save graphs; None: they save none."""
    scratch: bool = False
    """True if its runs are tries, which are gone with the server."""
    heartbeat: float = 15.0
    """Between two comments on a stream on which nothing happens."""
    patience: float = 30.0
    """For which a reader of a stream may take nothing, and a body may be on its way; then the connection is closed."""
    recheck: float = 15.0
    """Between two questions to `authorize` about a stream that is open."""
    streams: int = 256
    """The most streams that are open at the same time."""
    wait: float = 60.0
    """The longest that a request waits for a run; then it is answered with the run as it is."""
    poll: float = 1.0
    """Seconds between polls of the store for questions that were opened or closed."""

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"prefix={self.prefix!r}: use a path without a slash at its end, such as '/agents'")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise ValueError("the token is not usable: take 16 to 200 letters, digits and signs of '._~-'")
