"""The command line: the table of its commands, and the error handling around each of them.

Errors become a message on stderr and an exit code. A command's module is imported once the command is known.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial, wraps
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from orchestrator.cli.dotenv import load_dotenv
from orchestrator.cli.exits import INTERRUPTED, UsageError, alone, of_error
from orchestrator.cli.output import discard_output, error_text, redact_own, redacted, show_log, warn
from orchestrator.cli.signals import settle
from orchestrator.errors import OrchestratorError, RunUnknown


def guarded(command: Callable[..., int]) -> Callable[..., None]:
    """Wrap a command that returns its exit code for typer.

    A parameter of the command that is a dataclass is replaced by several options, one for each field.
    """
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group: Any = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            groups[name] = group
            options += inspect.signature(group, eval_str=True).parameters.values()
        else:
            options.append(parameter)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        def work() -> int:
            load_dotenv()
            redact_own()
            show_log()
            for name, group in groups.items():
                given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
            return _with_whole_ids(command, given, store)

        store = given.get("store") or next((one.store for one in given.values() if hasattr(one, "store")), None)
        code = _code(work, store)
        settle(code)
        raise typer.Exit(code)

    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options]
    vars(wrapper).update(__signature__=inspect.Signature(options))
    wrapper.__annotations__ = {one.name: one.annotation for one in options}
    return wrapper


def _with_whole_ids(command: Callable[..., int], given: dict[str, Any], store: str | None) -> int:
    """Call a command, with whole ids of runs in place of short ones.

    A command changes nothing before it has found all its runs.
    """
    while True:
        try:
            return command(**given)
        except RunUnknown as error:
            from orchestrator.cli.short_ids import whole_id  # few commands need it

            whole = whole_id(error.run_id, store) if any(map(partial(_names, error.run_id), given.items())) else None
            if whole is None:
                raise
            for name, value in given.items():
                if _names(error.run_id, (name, value)):
                    given[name] = (
                        whole if isinstance(value, str) else [whole if one == error.run_id else one for one in value]
                    )


def _names(run_id: str, argument: tuple[str, Any]) -> bool:
    """Return True if an argument, with its name and value, is this id of a run, or a list with it."""
    name, value = argument
    ids = [value] if isinstance(value, str) else value[:1] if name == "words" else value or ()
    return name in ("run", "what", "other", "runs", "words") and run_id in ids


def _code(command: Callable[[], int], store: str | None = None) -> int:
    try:
        return command()
    except BrokenPipeError:
        discard_output()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except ExceptionGroup as group:
        found = alone(group)
        if isinstance(found, ExceptionGroup):
            raise
        return _code(_raiser(found), store)
    except (UsageError, OrchestratorError, OSError) as error:
        from orchestrator.cli.explain_command import hint  # only errors need it

        warn(hint(f"error: {redacted(error_text(error, store))}", type(error).__name__))
        return of_error(error)


def _raiser(error: Exception) -> Callable[[], int]:
    def again() -> int:
        raise error

    return again


_COMMANDS = {
    "run": ("run_commands", "Run a graph until it ends or pauses."),
    "resume": ("run_commands", "Resume an interrupted or paused run until it ends or pauses."),
    "recover": ("run_commands", "Resume all runs whose process has ended."),
    "pause": ("run_commands", "Pause a run, whichever process drives it."),
    "cancel": ("run_commands", "Cancel a run, whichever process drives it."),
    "answer": ("answer_commands", "Answer a question of a run, and continue the run."),
    "approve": ("answer_commands", "Approve what a run asks, as shown, and continue the run."),
    "deny": ("answer_commands", "Deny what a run asks, and continue the run."),
    "send": ("answer_commands", "Send an event to a run, and continue the run."),
    "runs": ("runs_command", "List runs, newest first."),
    "note": ("note_command", "Write a note or a score on a run, or list them."),
    "show": ("view_commands", "Show the progress and state of a run."),
    "events": ("view_commands", "Print the events of a run."),
    "watch": ("answer_commands", "Watch a run until it ends, whichever process drives it."),
    "why": ("view_commands", "Explain why a run is where it is."),
    "stats": ("view_commands", "Show what runs spent, in groups."),
    "new": ("new_command", "Write a small project that runs."),
    "check": ("graph_commands", "Check a graph and list every problem."),
    "schema": ("graph_commands", "Print the JSON Schema of graph files, for editors."),
    "explain": ("explain_command", "Explain the codes of errors."),
    "render": ("graph_commands", "Draw a graph, or a run over its graph."),
    "graphs": ("graph_commands", "List the graphs that come with the library."),
    "tools": ("graph_commands", "List tools: their arguments, risk and effect."),
    "compare": ("compare_command", "Run several graphs on one question and compare them."),
    "diff": ("compare_command", "Show how two runs differ."),
    "eval": ("eval_command", "Run graphs on rows of data, and score the answers."),
    "fork": ("fork_command", "Start a new run from a record of another run."),
    "schedule": ("worker_commands", "Start runs of a graph at given times, by workers."),
    "replay": ("replay_command", "Replay runs from their journals, and compare."),
    "serve": ("serve_command", "Serve the runs of a store over HTTP, until SIGTERM or Ctrl-C."),
    "serve-mcp": ("serve_mcp", "Offer graphs as tools of an MCP server."),
    "worker": ("worker_commands", "Drive runs that no process drives, until SIGTERM or Ctrl-C."),
    "enqueue": ("worker_commands", "Add a run that a worker, or `recover`, starts."),
    "workers": ("worker_commands", "List the workers of a store and the runs that they hold."),
    "export": ("store_commands", "Write runs as JSON Lines."),
    "delete": ("store_commands", "Delete runs for good."),
    "prune": ("store_commands", "Delete runs that have ended, by age and number."),
    "import": ("store_commands", "Add the runs of an exported file."),
    "archive": ("store_commands", "Move the records of ended runs to an archive."),
    "restore": ("store_commands", "Move the records of archived runs back into the store."),
}
"""Command -> the module with the function of this name, and its summary, in the order of the help."""
_GROUPS = {
    "audit": ("Export what was approved, called and deleted, and check it.", "audit_commands", "export verify"),
    "store": ("Copy, check or upgrade whole stores.", "store_commands", "copy check upgrade"),
    "memory": ("Read and write the memory that runs share.", "memory_commands", "get put delete search prune list"),
    "model": ("Find out what models support.", "model_commands", "try"),
    "mcp": ("Log in to MCP servers.", "mcp_commands", "login logout list"),
    "cache": ("Show and remove results of cached nodes.", "store_commands", "clear prune list"),
}
"""Group of commands -> its summary, module and commands."""
_HEADINGS = {
    "Run graphs": "run resume recover pause cancel",
    "Answer runs": "answer approve deny send",
    "Look at runs": "runs show note events watch why stats diff",
    "Repeat and change runs": "fork replay",
    "Write and check graphs": "new check schema explain render graphs tools compare eval model mcp",
    "Serve and schedule": "serve serve-mcp worker enqueue workers schedule",
    "Keep, move and delete runs": "export import delete prune archive restore audit store memory cache",
}
"""Heading in the help -> its commands and groups of commands."""


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


def _empty() -> typer.Typer:
    app = typer.Typer(
        cls=_Main,
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
    return app


@cache
def application(only: str | None = None) -> typer.Typer:
    """The command line.

    Args:
        only: the only command or group to include, so that no other one is imported; None: all.
    """
    app = _empty()
    for name in (*_COMMANDS, *_GROUPS) if only is None else (only,):
        if name in _COMMANDS:
            function = name.replace("-", "_")
            _add(app, _COMMANDS[name][0], name, f"{name}_" if name in ("import", "eval") else function)
            continue
        text, module, commands = _GROUPS[name]
        group = typer.Typer(cls=_Group, help=text, no_args_is_help=True, rich_markup_mode=None)
        for command in commands.split():
            _add(group, module, command, f"{name}_{command}")
        app.add_typer(group, name=name)
    return app


def _list_of_commands() -> typer.Typer:
    """Return the command line without the commands' code: enough for its help, and to report a mistyped name."""
    app = _empty()
    for name, (_, summary) in _COMMANDS.items():
        app.command(name, help=summary)(_nothing)
    for name, (summary, _, _) in _GROUPS.items():
        app.command(name, help=summary)(_nothing)
    return app


def _nothing() -> None:
    pass


class _Command(TyperCommand):
    """A command that does not validate defaults and values that need no check.

    typer checks every value with a validator of pydantic, and loads and builds those at each start.
    """

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        for word in args[: args.index("--")] if "--" in args else args:
            name, known = word.partition("=")[0], {option for one in self.get_params(ctx) for option in one.opts}
            if name in _ELSEWHERE and known.issuperset(_ELSEWHERE[name].split()[:1]):
                ctx.fail(f"No such option: {name}: use {_ELSEWHERE[name]}")
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            said: str = getattr(error, "message", "")
            if "unexpected extra argument" in said and any(one.metavar in _TEXTS for one in self.params):
                ctx.fail(f"{said}: put quotes around a text of several words")
            if (wrong := _CHOICE.fullmatch(said)) is not None:
                from orchestrator.spelling import close_to  # only errors need it

                close = close_to(wrong[2], wrong[3].strip("'").split("', '"))
                vars(error)["message"] = f"{wrong[1]}; did you mean {close!r}?" if close else f"{wrong[1]}."
            raise


_CHOICE = re.compile(r"Value error, ('(.*)' is not one of (.+))\.", re.S)
"""The message of typer about a value that is none of the choices."""
_TEXTS = ("QUESTION", "TEXT", "VALUE")
"""Arguments that may have several words."""
_ELSEWHERE = {"--chatllm": "--model", "--max-duration": "--max-seconds", "--max-retries": "--set max_steps=N"}
"""Option of other agent frameworks -> the option here."""


class _Group(TyperGroup):
    """Group of commands that takes values like `_Command`."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


class _Main(_Group):
    """The command line: its help lists the commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = {name: found for name in self.list_commands(ctx) if (found := self.get_command(ctx, name)) is not None}
        wide = max(map(len, known))
        for heading, names in _HEADINGS.items():
            with formatter.section(heading):
                listed = [(name, known[name]) for name in names.split() if name in known]
                formatter.write_dl(
                    [(name.ljust(wide), one.get_short_help_str(formatter.width)) for name, one in listed]
                )


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if "process_value" not in vars(parameter):
            vars(parameter)["process_value"] = partial(_value, parameter, parameter.process_value)
    return parameters


def _value(parameter: Any, check: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Return the value of a parameter, in place of `click.Parameter.process_value`."""
    source = context.get_parameter_source(parameter.name)
    default = source is not None and source.name == "DEFAULT"
    if parameter.callback is not None:  # of options such as --version, which need no value
        return parameter.callback(context, parameter, None) if default and value is None else check(context, value)
    if not default or parameter.required:
        taken = _taken(getattr(parameter, "type_descriptor", None), value)
        return check(context, value) if taken is None else taken
    return () if value is None and (parameter.multiple or parameter.nargs == -1) else value


def _taken(wanted: Any, typed: Any) -> str | list[str] | int | None:
    """Return the typed value if it is certainly valid, else None.

    Args:
        wanted: typer's description of the parameter; None if it has none.
        typed: one word, or several.
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
"""Bytes of an argument that are not valid text."""


def _add(app: typer.Typer, module: str, name: str, function: str) -> None:
    found = vars(import_module(f"orchestrator.cli.{module}"))
    app.command(name, cls=_Command)(guarded(found[function]))


def _open_streams() -> None:
    """Replace standard streams that were closed when the process was started.

    Otherwise the next opened file, such as the store, would get the stream's file descriptor and its output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  open until the process ends


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    _open_streams()
    # A terminal or pipe with a smaller character set gets escapes for the other characters.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app = _app_for(sys.argv[1:] if arguments is None else arguments)
    get_command(app).main(args=arguments, prog_name="orchestrator")
    sys.exit(0)


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the part of the command line that these arguments need: loading all of it would take long."""
    first = arguments[0] if arguments else "--help"
    if first in _COMMANDS or first in _GROUPS:
        return application(first)
    completes = "_ORCHESTRATOR_COMPLETE" in os.environ
    lists = first in ("--help", "-h", "--version") or not first.startswith("-")
    return _list_of_commands() if lists and not completes else application()
