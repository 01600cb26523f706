"""Changing the arguments of a call before it is approved: in the person's editor, or on one line."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from orchestrator.cli.output import warn
from orchestrator.visible import exact

Args = dict[str, object]


async def edited(args: Args, line: Callable[[str], Awaitable[str]]) -> Args | None:
    """The arguments as the person wants them; None if they left them as they are, or made no JSON object of them.

    Args:
        args: as they are now.
        line: asks for a line of text, where neither `VISUAL` nor `EDITOR` names a program.
    """
    text = json.dumps(args, ensure_ascii=False, indent=2)
    editor = _editor()
    if editor is None:
        said = (await line("args (one line of JSON; empty: unchanged)> ")).strip()
        return _parsed(said, args) if said else None
    found = await _with_editor(editor, text)
    return None if found is None else _parsed(found, args)


def _editor() -> list[str] | None:
    said = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    try:
        return shlex.split(said) or None if said else None
    except ValueError:
        warn(f"VISUAL or EDITOR is not a command line: {said}")
        return None


async def _with_editor(editor: list[str], text: str) -> str | None:
    """What is in a file after the editor; None, and a word on why, if that did not work."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
        file = anyio.Path(folder, "args.json")  # the folder is this user's only
        await file.write_text(text + "\n", encoding="utf-8")
        try:
            with _left_alone():
                # Stdout may be a file that waits for the result; questions are asked on stderr, which is a terminal.
                done = await anyio.run_process(
                    [*editor, str(file)], stdin=sys.stdin.fileno(), stdout=sys.stderr.fileno(),
                    stderr=sys.stderr.fileno(), check=False,
                )  # fmt: skip
        except OSError as error:
            warn(f"{editor[0]} cannot be started: {error.strerror}; set VISUAL or EDITOR to an editor")
            return None
        if done.returncode:
            warn(f"{editor[0]} exited with code {done.returncode}: nothing is changed")
            return None
        try:
            return await file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            warn(f"the file from {editor[0]} cannot be read: {error}")
            return None


@contextmanager
def _left_alone() -> Iterator[None]:
    """Ctrl-C is the editor's while it is open. A handler that does nothing: being ignored would be inherited."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _parsed(text: str, before: Args) -> Args | None:
    try:
        found = json.loads(text)
    except ValueError as error:
        warn(f"this is not JSON: {error}")
        return None
    if not isinstance(found, dict):
        warn('give the arguments as a JSON object, such as {"path": "a.txt"}')
        return None
    if found == before:
        warn("nothing is changed")
        return None
    for name in dict.fromkeys((*before, *found)):
        if name not in found:
            warn(f"  - {name}  {exact(before[name])}")
        elif name not in before:
            warn(f"  + {name}  {exact(found[name])}")
        elif found[name] != before[name]:
            warn(f"  ~ {name}  {exact(before[name])} -> {exact(found[name])}")
    return found
