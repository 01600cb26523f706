"""The command line: all of its commands in one application."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from orchestrator.cli import (
    answer_commands,
    cache_commands,
    compare_command,
    diff_command,
    fork_command,
    graph_commands,
    listing,
    memory_commands,
    new_command,
    replay_command,
    retention_commands,
    run_commands,
    schedule_command,
    send_command,
    serve_command,
    serve_mcp,
    stats_command,
    store_commands,
    view_commands,
    watch_command,
    why_command,
    worker_command,
)
from orchestrator.cli.guard import guarded

app = typer.Typer(
    name="orchestrator",
    help="Run, inspect, resume and draw agent graphs.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 paused, 4 unknown run or question, 5 exhausted, "
    "6 cancelled, 7 held by another process, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from orchestrator import __version__

        typer.echo(f"orchestrator {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for command in (
    run_commands.run, run_commands.resume, run_commands.recover, run_commands.pause, run_commands.cancel,
    answer_commands.answer, answer_commands.approve, answer_commands.deny, send_command.send,
    view_commands.runs, view_commands.show, view_commands.events, watch_command.watch, why_command.why,
    stats_command.stats,
    new_command.new, graph_commands.check, graph_commands.render, listing.graphs, listing.tools,
    compare_command.compare, diff_command.diff, fork_command.fork, schedule_command.schedule, replay_command.replay,
    serve_command.serve, serve_mcp.serve_mcp, worker_command.worker, worker_command.enqueue,
    retention_commands.export, retention_commands.delete, retention_commands.prune,
):  # fmt: skip
    app.command()(guarded(command))
app.command("import")(guarded(retention_commands.import_))

store = typer.Typer(help="Copy or check whole stores.", no_args_is_help=True, rich_markup_mode=None)
store.command()(guarded(store_commands.copy))
store.command()(guarded(store_commands.check))
app.add_typer(store, name="store")

memory = typer.Typer(help="Read and write the memory that runs share.", no_args_is_help=True, rich_markup_mode=None)
for act in (
    memory_commands.get, memory_commands.put, memory_commands.delete, memory_commands.search, memory_commands.prune,
):  # fmt: skip
    memory.command()(guarded(act))
memory.command("list")(guarded(memory_commands.list_))
app.add_typer(memory, name="memory")

cache = typer.Typer(help="Look at and remove results of cached nodes.", no_args_is_help=True, rich_markup_mode=None)
cache.command()(guarded(cache_commands.clear))
cache.command()(guarded(cache_commands.prune))
cache.command("list")(guarded(cache_commands.list_))
app.add_typer(cache, name="cache")


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
    get_command(app).main(args=arguments, prog_name="orchestrator")
    sys.exit(0)
