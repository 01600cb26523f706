"""What `--help` says of every command, at a fixed width."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from unittest.mock import patch

import click
from typer.main import get_command

from orchestrator.cli.app import application
from tests.frozen.texts import Sections

WIDTH = "100"


def _commands(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*words, name))


def helps() -> Sections:
    """The helps by command."""
    found: dict[str, str] = {}
    root = get_command(application())
    with patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}):
        for words, _ in _commands(root, ()):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
                root.main([*words, "--help"], prog_name="orchestrator")
            found[" ".join(("orchestrator", *words))] = out.getvalue()
    return found
