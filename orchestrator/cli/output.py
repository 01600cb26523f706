"""Writing: the result to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from orchestrator.cli.redaction import redacted
from orchestrator.cli.words import visible
from orchestrator.visible import is_hidden

if TYPE_CHECKING:
    from orchestrator.render.terminal.tables import Cell, Column, Looks


def out(text: str, *, exact: bool = False) -> None:
    """Write lines to stdout at once.

    Nothing in them can command a terminal, not even behind a pipe; with `exact` they are changed only on a terminal,
    so that what is read by a program is what was written.

    Raises:
        BrokenPipeError: stdout is closed at the other end.
    """
    print(text if exact and not sys.stdout.isatty() else visible(text), flush=True)


def out_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str] | str]) -> None:
    """Write a table to stdout, as wide and as coloured as stdout allows.

    Raises:
        BrokenPipeError: stdout is closed at the other end.
    """
    from orchestrator.render.terminal.tables import looks_of, table

    print(table(columns, rows, looks_of(sys.stdout)), flush=True)


def out_made(made: Callable[[Looks], str]) -> None:
    """Write to stdout what is made for its looks, in which nothing of others commands a terminal.

    Raises:
        BrokenPipeError: stdout is closed at the other end.
    """
    from orchestrator.render.terminal.tables import looks_of

    print(made(looks_of(sys.stdout)), flush=True)


def out_json(value: object) -> None:
    """One JSON document on stdout."""
    print(_json(value, indent=2), flush=True)


def out_line(value: object) -> None:
    """One line of JSON Lines on stdout."""
    print(_json(value), flush=True)


def _json(value: object, indent: int | None = None) -> str:
    """JSON in which whatever a terminal, or the encoding of stdout, would not take is written as JSON's own escapes."""
    narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=narrow, indent=indent)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(json.dumps(char)[1:-1] if is_hidden(char) and char != "\n" else char for char in text)


def out_bytes(data: bytes) -> None:
    """Bytes on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def written(path: str | None) -> Iterator[Callable[[bytes], object]]:
    """Write lines to a file that only its owner may read, or to stdout. They appear there when all of them are written.

    On a terminal, nothing in them can command it.
    """
    if path is None:
        with tempfile.TemporaryFile() as whole:
            yield whole.write
            whole.seek(0)
            if sys.stdout.isatty():
                for line in whole:
                    out(line.decode().removesuffix("\n"))
                return
            sys.stdout.flush()
            shutil.copyfileobj(whole, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    draft = f"{path}.{os.getpid()}.part"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file.write
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def discard_output(stream: TextIO | None = None) -> None:
    """Discard what is written to stdout, or to another stream, from now on: no process reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (stream or sys.stdout).fileno())
    os.close(nowhere)


def warn(text: str) -> None:
    """Write lines to stderr. The command continues if stderr is closed at the other end."""
    try:
        print(visible(text), file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard_output(sys.stderr)


def show_log() -> None:
    """Show what the library warns of on stderr, like everything else that is said there."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # The command that drives the run tells why it was given up, and what failed.
            if not hasattr(record, "given_up") and record.name != "orchestrator.steps":
                warn(f"{record.levelname.lower()}: {redacted(record.getMessage())}")

    log = logging.getLogger("orchestrator")
    if not log.handlers:
        log.addHandler(Handler())
        log.propagate = False
