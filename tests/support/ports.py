"""Ports for servers of tests that cannot choose their own."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a free port of 127.0.0.1, below those that connections of other tests get."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)  # hypothesis seeds the module's own numbers
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
