"""Writing: the result to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys

from orchestrator.cli.words import visible


def out(text: str) -> None:
    """Write lines to stdout at once; on a terminal nothing in them can command it.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    print(visible(text) if sys.stdout.isatty() else text, flush=True)


def out_json(value: object) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2), flush=True)


def out_line(value: object) -> None:
    """One line of JSON Lines on stdout."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def out_bytes(data: bytes) -> None:
    """Bytes on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def nobody_reads() -> None:
    """Stdout is closed at the other end: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(text: str) -> None:
    """Write lines to stderr. A stderr that nobody reads is no reason to stop."""
    try:
        print(visible(text), file=sys.stderr, flush=True)
    except BrokenPipeError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
