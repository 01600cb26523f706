"""The command line: all of its commands in one application."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from orchestrator.cli.guard import guarded

_MODULES = {
    "run_commands": "run resume recover pause cancel",
    "answer_commands": "answer approve deny",
    "send_command": "send",
    "view_commands": "runs show events",
    "watch_command": "watch",
    "why_command": "why",
    "stats_command": "stats",
    "new_command": "new",
    "graph_commands": "check render",
    "listing": "graphs tools",
    "compare_command": "compare",
    "diff_command": "diff",
    "fork_command": "fork",
    "schedule_command": "schedule",
    "replay_command": "replay",
    "serve_command": "serve",
    "serve_mcp": "serve-mcp",
    "worker_command": "worker",
    "enqueue_command": "enqueue",
    "workers_command": "workers",
    "retention_commands": "export delete prune import archive restore",
}
"""Module -> the commands that are its functions of these names, in the order in which help lists them."""
_GROUPS = {
    "store": ("Copy or check whole stores.", "store_commands", "copy check"),
    "memory": ("Read and write the memory that runs share.", "memory_commands", "get put delete search prune list"),
    "cache": ("Look at and remove results of cached nodes.", "cache_commands", "clear prune list"),
}
"""Group of commands -> what help says of it, the module, and the commands."""
_HOMES = {command: module for module, commands in _MODULES.items() for command in commands.split()}


def _version(wanted: bool) -> None:
    if wanted:
        from orchestrator import __version__

        typer.echo(f"orchestrator {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@cache
def application(only: str | None = None) -> typer.Typer:
    """The command line.

    Args:
        only: the one command or group that it has, so that no other one is imported; None: all of them.
    """
    app = typer.Typer(
        cls=_Group,
        name="orchestrator",
        help="Run, inspect, resume and draw agent graphs.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 paused, 4 unknown run or question, 5 exhausted, "
        "6 cancelled, 7 held by another process, 130 interrupted.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in _HOMES if only is None else (only,) if only in _HOMES else ():
        _add(app, _HOMES[name], name)
    for name in _GROUPS if only is None else (only,) if only in _GROUPS else ():
        text, module, commands = _GROUPS[name]
        group = typer.Typer(cls=_Group, help=text, no_args_is_help=True, rich_markup_mode=None)
        for command in commands.split():
            _add(group, module, command)
        app.add_typer(group, name=name)
    return app


class _Command(TyperCommand):
    """A command that takes defaults, and what needs no check, as they stand.

    typer checks every value with a validator of pydantic, and loads and builds those at each start.
    """

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


class _Group(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if "process_value" not in vars(parameter):
            vars(parameter)["process_value"] = partial(_value, parameter, parameter.process_value)
    return parameters


def _value(parameter: Any, check: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """What a parameter is, in `click.Parameter.process_value`."""
    source = context.get_parameter_source(parameter.name)
    default = source is not None and source.name == "DEFAULT"
    if parameter.callback is not None:  # of options such as --version, which need no value
        return parameter.callback(context, parameter, None) if default and value is None else check(context, value)
    if not default or parameter.required:
        taken = _taken(getattr(parameter, "type_descriptor", None), value)
        return check(context, value) if taken is None else taken
    return () if value is None and (parameter.multiple or parameter.nargs == -1) else value


def _taken(wanted: Any, typed: Any) -> str | list[str] | int | None:
    """What was typed, if it is certainly what a parameter may be.

    Args:
        wanted: typer's description of the parameter; None: it has none.
        typed: a word, or words.
    """
    words: list[Any] = [*typed] if isinstance(typed, tuple | list) else [typed]
    kind = getattr(wanted, "annotation", None)
    if not words or not all(isinstance(word, str) and not _BROKEN.search(word) for word in words):
        return None
    if kind is str and isinstance(typed, str):
        return typed
    if kind == list[str] and not isinstance(typed, str):
        return words
    if kind is int and isinstance(typed, str) and _NUMBER.fullmatch(typed):
        limits = wanted.parameter_info
        least, most = (limits.min or 0), (int(typed) if limits.max is None else limits.max)
        return int(typed) if least <= int(typed) <= most else None
    return None


_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_BROKEN = re.compile("[\ud800-\udfff]")
"""Bytes of an argument that are no text."""


def _add(app: typer.Typer, module: str, name: str) -> None:
    found = vars(import_module(f"orchestrator.cli.{module}"))
    function = name.replace("-", "_")
    app.command(name, cls=_Command)(
        guarded(found.get(f"{function}_") or found[function])
    )  # `list_`, `import_`: not Python's


def _open_streams() -> None:
    """Where the process was started with a stream closed, let it lead nowhere.

    Else the next file that is opened, such as the store, would take its number, and be written to by whoever means
    the stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  open until the process ends


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    _open_streams()
    # A terminal, or a pipe, that knows fewer characters gets escapes for the others.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    first = next(iter(sys.argv[1:] if arguments is None else arguments), None)
    app = application(first if first in _HOMES or first in _GROUPS else None)
    get_command(app).main(args=arguments, prog_name="orchestrator")
    sys.exit(0)
