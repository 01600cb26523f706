"""Colours on a terminal: where they are wanted, and the meaning of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}

STATUS = {
    "completed": "green", "failed": "red", "paused": "yellow", "interrupted": "yellow", "running": "cyan",
    "cancelled": "dim", "exhausted": "magenta",
}  # fmt: skip
"""The colour of each status of a run."""
RISK = {"none": "dim", "read": "green", "write": "yellow", "dangerous": "red"}
"""The colour of each risk of a tool."""


def wants_colours(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return True if text on a stream may have colours.

    `NO_COLOR` forbids them everywhere. `FORCE_COLOR` asks for them everywhere else. Without both, a terminal has them
    unless it is a `dumb` one, and a pipe or a file has none.

    Args:
        stream: what is written to.
        environ: the environment; None: that of this process.
    """
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] != "0"
    return stream.isatty() and environ.get("TERM", "") not in ("", "dumb")


def coloured(text: str, colour: str) -> str:
    """The text in a colour or weight; unchanged if the colour is empty."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colour and text else text


def can_draw(stream: TextIO) -> bool:
    """True if a stream is a terminal that can redraw lines, and neither TERM=dumb nor NO_COLOR asks for plain text."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and not os.environ.get("NO_COLOR")
