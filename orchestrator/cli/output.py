"""Output: the result on stdout, everything else on stderr, with secrets redacted.

Commands in messages are quoted for the shell.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from orchestrator._lazy import lazy_modules
from orchestrator.cli.exits import UsageError
from orchestrator.errors import OrchestratorError
from orchestrator.visible import is_hidden
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator import redaction
    from orchestrator.render.terminal import tables
    from orchestrator.render.terminal.tables import Cell, Column, Looks
    from orchestrator.stores import RunInfo
else:  # compiling patterns takes a while, and not every command prints a table
    (redaction,) = lazy_modules("orchestrator", "redaction")
    (tables,) = lazy_modules("orchestrator.render.terminal", "tables")


def redacted(value: object) -> object:
    """Return a plain value with secrets redacted in every string.

    Calls to approve are shown unchanged, because they will be made exactly as shown.
    """
    return redaction.redacted(value)


def row_document(info: RunInfo) -> dict[str, object]:
    """Return the row of a run as plain JSON, redacted."""
    made = info.to_json()
    return made | {name: redacted(made[name]) for name in info.REDACTED}


def redact_own() -> None:
    """Apply `ORCHESTRATOR_REDACT`: regular expressions, one per line, whose matches are redacted in all output.

    Raises:
        UsageError: one cannot be compiled, or matches the empty string.
    """
    said = os.environ.get("ORCHESTRATOR_REDACT", "").splitlines()
    if said:
        for pattern in filter(None, map(str.strip, said)):
            try:
                redaction.redact_also(pattern)
            except ValueError as error:
                raise UsageError(f"ORCHESTRATOR_REDACT: {error}") from None


def out(text: str, *, exact: bool = False) -> None:
    """Write lines to stdout at once.

    Terminal control sequences are escaped, also if stdout is a pipe. With `exact`, they are escaped only if stdout is a
    terminal, so that programs read the text unchanged.

    Raises:
        BrokenPipeError: stdout is closed at the other end.
    """
    print(text if exact and not sys.stdout.isatty() else visible(text), flush=True)


def out_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str] | str]) -> None:
    """Write a table to stdout, with the width and colours that stdout supports.

    Raises:
        BrokenPipeError: stdout is closed at the other end.
    """
    print(tables.table(columns, rows, tables.looks_of(sys.stdout)), flush=True)


def out_made(made: Callable[[Looks], str]) -> None:
    """Write formatted output to stdout, whose inserted text has its terminal control sequences escaped.

    Raises:
        BrokenPipeError: stdout is closed at the other end.
    """
    print(made(tables.looks_of(sys.stdout)), flush=True)


def out_json(value: object) -> None:
    """Print a JSON document on stdout."""
    print(_json(value, indent=2), flush=True)


def out_line(value: object) -> None:
    """Print one line of JSON Lines on stdout."""
    print(_json(value), flush=True)


def _json(value: object, indent: int | None = None) -> str:
    """Return JSON that escapes every character which a terminal, or the encoding of stdout, would not accept."""
    narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=narrow, indent=indent)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(json.dumps(char)[1:-1] if is_hidden(char) and char != "\n" else char for char in text)


def out_bytes(data: bytes) -> None:
    """Write bytes to stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def written(path: str | None) -> Iterator[Callable[[bytes], object]]:
    """Write lines to a file that only its owner may read, or to stdout. The file appears once all lines are written.

    On a terminal, control sequences are escaped.
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
    """Discard further output to stdout, or to another stream: no process reads it."""
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
    """Show warnings of the library on stderr, like all other messages."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # The command that drives the run reports why it was abandoned, and what failed.
            if not hasattr(record, "given_up") and record.name != "orchestrator.steps":
                warn(f"{record.levelname.lower()}: {redacted(record.getMessage())}")

    log = logging.getLogger("orchestrator")
    if not log.handlers:
        log.addHandler(Handler())
        log.propagate = False


def program() -> tuple[str, ...]:
    """Return the command that starts this program again, as a list of arguments."""
    called = sys.argv[0] if sys.argv else ""
    if called.endswith("__main__.py"):
        return _found(sys.executable or "python"), "-m", "orchestrator"
    return (_found(called) if os.path.basename(called).startswith("orchestrator") else "orchestrator",)


def _found(path: str) -> str:
    """Return a program's name if the shell finds this program by it, else its path."""
    name = os.path.basename(path)
    found = shutil.which(name)
    same = not os.path.exists(path) or (found is not None and os.path.abspath(found) == os.path.abspath(path))
    return name if same else os.path.abspath(path)


def quoted(words: Sequence[str]) -> str:
    """Quote words for the shell."""
    return shlex.join(words)


def shell_command(*words: str) -> str:
    """Return a command of this program, quoted for the shell."""
    return quoted((*program(), *words))


_COMMAND = re.compile(r"`orchestrator ((?:answer|fork|resume|runs|show|why)\b[^`\n]*)`")


_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_GOT = re.compile(r"\bgot (.{1,60}?) \((NoneType|bool|int|float|str|dict|list|tuple)\)")
_JSON_KINDS = {"int": "a number", "float": "a number", "str": "a text", "dict": "an object", "list": "a list"}


def _as_json(found: re.Match[str]) -> str:
    """Return a value that a message quotes as JSON: who types commands may not know Python."""
    try:
        value = json.dumps(ast.literal_eval(found[1]), ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, RecursionError):  # it is shortened
        value = found[1]
    kind = _JSON_KINDS.get(found[2])
    return f"got {value}" if kind is None else f"got {value} ({kind})"


def error_text(error: BaseException, store: str | None = None) -> str:
    """Return the message of an error, with commands that work as printed, and values as JSON.

    Args:
        error: the error.
        store: the value of `--store`, which commands that read runs need, too.
    """
    from orchestrator.stores.places import shown_url

    text = error.typed if isinstance(error, OrchestratorError) and error.typed else str(error)

    def runnable(found: re.Match[str]) -> str:
        try:
            parts = shlex.split(found[1])
        except ValueError:
            return found[0]
        return f"`{shell_command(*parts, *(() if store is None else ('--store', shown_url(store))))}`"

    return _COMMAND.sub(runnable, _GOT.sub(_as_json, _ERRNO.sub("", text)))
