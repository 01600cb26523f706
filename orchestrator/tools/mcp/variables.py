"""Values of `${...}` in references to servers and in files of servers.

`${NAME}` and `${env:NAME}` are variables of the environment, `${input:ID}` is asked for at the terminal, once in a
process, and `${workspaceFolder}` and `${userHome}` are directories.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

from orchestrator.errors import GraphUnknown
from orchestrator.visible import narrow

VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]{0,200})(?::-([^}]{0,2000}+))?\}")
"""`${NAME}`, `${env:NAME}` or `${NAME:-default}`: looked up in the environment when the server is connected."""
_INPUT = re.compile(r"\$\{input:([^}]{1,200}+)\}")
_OF_EDITORS = ("${command:", "${config:", "${file:")
_ASKED: dict[tuple[str, str], str] = {}
"""Answers of the user in this process: the file and the id of the input -> its value."""
_ASKING = Lock()


class Variables:
    """Replaces `${...}` in texts.

    Args:
        file: the file that has the texts; None: a reference, which has no inputs and no folder.
        inputs: the inputs that the file describes, as VS Code writes them:
            `[{"id": ..., "type": "promptString", "description": ..., "password": true}]`.
    """

    def __init__(self, file: Path | None = None, inputs: object = None) -> None:
        self._file = str(file)
        self.folder = workspace_of(file) if file is not None else Path()
        self._directories = {} if file is None else {"workspaceFolder": str(self.folder), "userHome": str(Path.home())}
        self._inputs: dict[str, Mapping[str, object]] = {
            str(one.get("id")): one for one in (inputs if isinstance(inputs, list) else ()) if isinstance(one, dict)
        }
        self.secrets: list[str] = []
        """Values of the inputs marked as passwords that were used so far."""

    def expanded(self, text: str, where: str) -> str:
        """Return the text with its variables, inputs and directories replaced.

        Args:
            text: the text.
            where: the place of the text, for messages.

        Raises:
            GraphUnknown: a variable is not set and has no default; an input is not described, or there is no terminal
                at which to ask for it; or only an editor can fill it in (`${command:NAME}`).
        """
        for kind in _OF_EDITORS:
            if kind in text:
                name = text.partition(kind)[2].partition("}")[0]
                raise GraphUnknown(
                    f"{where}: {kind}{name}}} is filled in by editors only: "
                    "write a variable of the environment, ${NAME}"
                )
        parts = _INPUT.split(text)  # what a user typed is not expanded again
        parts[::2] = (VARIABLE.sub(lambda found: self._value(found, where), part) for part in parts[::2])
        parts[1::2] = (self._input(name, where) for name in parts[1::2])
        return "".join(parts)

    def _value(self, found: re.Match[str], where: str) -> str:
        name, default = found[1], found[2]
        known = os.environ.get(name, self._directories.get(name))
        if default is not None:
            return known or default
        if known is None:
            raise GraphUnknown(f"{where}: the environment has no {name}: set it, or write ${{{name}:-default}}")
        return known

    def _input(self, name: str, where: str) -> str:
        described = self._inputs.get(name)
        if described is None:
            there = ", ".join(self._inputs) or "none"
            raise GraphUnknown(f"{where}: no input {name!r} is described under 'inputs'; there are: {there}")
        place = f"{where}: the input {name!r} ({narrow(str(described.get('description') or 'no description'))})"
        if described.get("type", "promptString") not in ("promptString", "pickString"):
            raise GraphUnknown(f"{place} is filled in by editors only: write a variable of the environment, ${{NAME}}")
        with _ASKING:
            if (self._file, name) not in _ASKED:
                if not (sys.stdin.isatty() and sys.stderr.isatty()):
                    raise GraphUnknown(
                        f"{place} is asked for at a terminal, and there is none: run the command at a terminal, or "
                        "write a variable of the environment in the file, ${NAME}"
                    )
                _ASKED[self._file, name] = _asked(name, described, place)
        value = _ASKED[self._file, name]
        if described.get("password") is True:
            self.secrets.append(value)
        return value


def workspace_of(file: Path) -> Path:
    """Return the directory that a file of servers is for: `.vscode/mcp.json` is for the directory above `.vscode`."""
    folder = file.absolute().parent
    return folder.parent if folder.name in (".vscode", ".cursor", ".gemini") else folder


def _asked(name: str, described: Mapping[str, object], place: str) -> str:
    """Ask the user for an input until it has a value; a password is not shown while it is typed."""
    options, default = list(_options(described.get("options"))), described.get("default")
    default = default if isinstance(default, str) else ""
    prompt = narrow(
        str(described.get("description") or name)
        + (f" [{' / '.join(options)}]" if options else "")
        + (f" (default: {default})" if default and described.get("password") is not True else "")
    )
    while True:
        said = _typed(f"{prompt}: ", hidden=described.get("password") is True)
        value = said or default
        if value and (not options or value in options):
            return value
        if not said:
            raise GraphUnknown(f"{place} was not given")
        print(f"choose one of: {narrow(', '.join(options))}", file=sys.stderr)


def _typed(prompt: str, *, hidden: bool) -> str:
    if hidden:
        try:
            return getpass.getpass(prompt, stream=sys.stderr)
        except EOFError:
            return ""
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().rstrip("\n")


def _options(listed: object) -> Iterator[str]:
    for one in listed if isinstance(listed, list) else ():
        value = one.get("value", one.get("label")) if isinstance(one, dict) else one
        if isinstance(value, str):
            yield value
