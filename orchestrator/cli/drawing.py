"""Commands about graphs and tools themselves: check, render, graphs, tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, FAILED, INTERRUPTED, UsageError
from orchestrator.cli.guard import guarded
from orchestrator.errors import GraphUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.executor import Run
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.report import CheckReport
    from orchestrator.tools import Tool, Toolbox

SUFFIXES = {
    ".svg": "svg",
    ".png": "png",
    ".dot": "dot",
    ".gv": "dot",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".txt": "text",
    ".html": "html",
    ".htm": "html",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (check, render, graphs, tools):
        app.command()(guarded(command))


def check(
    graph: options.Graph,
    trust: options.Trust = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Check a graph and tell every problem.

    Beside problems there are notes, on what is legal and often not meant. Exit code 1 if there is a problem. Code that
    a YAML or JSON file names is imported with --trust only; without it, it is said what was not checked.

    Example: orchestrator check essay.py:essay
    """
    from orchestrator.cli.graphrefs import shape_from_ref
    from orchestrator.cli.output import out, out_json
    from orchestrator.errors import ArrowSyntaxError, InvalidGraph
    from orchestrator.graph.checks.all import report_of
    from orchestrator.graph.report import CheckReport
    from orchestrator.problem import Problem

    name, skipped = graph, tuple[str, ...]()
    try:
        found, skipped = shape_from_ref(graph, trust or ())
        name, report = found.name, report_of(found)
    except InvalidGraph as error:
        name, report = error.name, CheckReport(errors=error.problems)
    except ArrowSyntaxError as error:
        report = CheckReport(errors=(Problem("C1", str(error)),))
    if json:
        out_json(_report_data(name, report, skipped))
    else:
        out(_report_text(name, report, skipped))
    return FAILED if report.errors else COMPLETED


def _report_data(name: str, report: CheckReport, skipped: Sequence[str]) -> dict[str, object]:
    problems = [
        {"code": p.code, "message": p.message, "nodes": list(p.nodes), "edges": list(p.edges)} for p in report.errors
    ]
    return {
        "graph": name,
        "ok": not problems,
        "problems": problems,
        "notes": list(report.notes),
        "skipped": list(skipped),
    }


def _report_text(name: str, report: CheckReport, skipped: Sequence[str]) -> str:
    from orchestrator.cli.words import line

    name, count = line(name), len(report.errors)
    head = f"{name}: {count} problem{'s' if count != 1 else ''}" if count else f"{name}: OK"
    if skipped and not count:
        head = f"{name}: no problem in what was checked"
    problems = [f"  {p.code}  {_indented(p.message)}" for p in report.errors]
    notes = [f"  note  {_indented(note)}" for note in report.notes]
    return "\n".join((head, *problems, *notes, *(f"  not checked without --trust  {line(one)}" for one in skipped)))


def _indented(text: str) -> str:
    return text.replace("\n", "\n      ")


def render(
    what: Annotated[str, typer.Argument(metavar="GRAPH|RUN", help="A graph, or the id of a run.", show_default=False)],
    other: Annotated[
        str | None,
        typer.Argument(metavar="RUN2", help="A second run, to compare with in one html page.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
    at: options.At = None,
    trust: options.Trust = None,
    format: Annotated[  # noqa: A002 - the option's name
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="svg, png, dot, mermaid, text, html or yaml. Default: by the file's suffix, else text.",
        ),
    ] = None,
    store: options.Store = None,
) -> int:
    """Draw a graph, or a run over its graph.

    html is one file that works offline: the picture, a replay of the run, its steps, states, prompts and calls.

    A run needs no code, only its store. A name that is both a run's and a module's is the run; a shipped graph's
    name, and anything with a colon or a file's suffix, is a graph.

    Example: orchestrator render tool_user -o tool_user.svg
    """
    from orchestrator import render as drawings
    from orchestrator.cli.output import out, warn

    form = _format(format, output)
    if other is not None and form != "html":
        raise UsageError("two runs go into a page only: give --format html, or -o FILE.html")
    try:
        if other is None:
            made = drawings.render(_subject(what, at, store, trust or ()), form)
        else:
            one, two = (_a_run(name, at, store) for name in (what, other))
            made = one.to_html(two)
    except drawings.RenderError as error:
        raise UsageError(str(error)) from None
    if output is not None:
        output.write_bytes(made if isinstance(made, bytes) else made.rstrip("\n").encode() + b"\n")
        warn(f"wrote {output}")
    elif isinstance(made, bytes):
        return _bytes(made)
    else:
        out(made.rstrip("\n"), exact=True)
    return COMPLETED


def _a_run(name: str, at: int | None, store: str | None) -> Run:
    from orchestrator.cli.reading import load
    from orchestrator.cli.storage import store_url

    return load(store_url(store), name, at)


def _bytes(made: bytes) -> int:
    import sys

    from orchestrator.cli.output import out_bytes

    if sys.stdout.isatty():
        raise UsageError("a picture is no text for a terminal: name a file with -o")
    out_bytes(made)
    return COMPLETED


def _format(given: str | None, output: Path | None) -> str:
    from orchestrator.render import FORMATS

    if given is None and output is not None and output.suffix:
        found = SUFFIXES.get(output.suffix.lower())
        if found is None:
            raise UsageError(f"no format goes by {output.suffix!r}: give --format, one of {', '.join(FORMATS)}")
        return found
    form = given or "text"
    if form not in FORMATS:
        raise UsageError(f"no format {form!r}: there are {', '.join(FORMATS)}")
    return form


def _subject(what: str, at: int | None, store: str | None, trust: Sequence[str]) -> GraphDefinition | Run:
    from orchestrator.cli.environment import is_installed
    from orchestrator.cli.graphrefs import is_file_ref, shape_from_ref, shipped, unknown
    from orchestrator.cli.output import warn
    from orchestrator.cli.reading import find_run

    if not is_file_ref(what) and (at is not None or what not in shipped()):
        run = find_run(what, store, at)
        if run is not None:
            return run
    if at is not None:
        raise UsageError(f"--at is for a run, and there is no run {what!r} in this store")
    try:
        if not is_file_ref(what) and what not in shipped() and not is_installed(what):
            # A run's id, mistyped or of another store, must not import what stands here under that name.
            raise unknown(what, "it is neither shipped nor an installed module")
        found, skipped = shape_from_ref(what, trust)
    except GraphUnknown as error:
        if is_file_ref(what):
            raise
        raise GraphUnknown(f"there is no run {what!r} in this store, and {error}") from None
    if skipped:
        warn(f"{what} is drawn without its code, which --trust imports")
    return found


def graphs(json: options.Json = False, store: options.Store = None) -> int:
    """List the graphs that come with the library.

    Example: orchestrator graphs
    """
    from orchestrator.cli.graphrefs import graph_from_ref, shipped
    from orchestrator.cli.output import out, out_json

    found = {name: graph_from_ref(name) for name in shipped()}
    if json:
        out_json([{"name": name, "description": graph.description} for name, graph in found.items()])
        return COMPLETED
    width = max(map(len, found), default=0)
    out("\n".join(f"{name:{width}}  {graph.description}".rstrip() for name, graph in found.items()))
    return COMPLETED


def tools(
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="REF", help="A built-in group or tool, module, module:attr or file.py:attr.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List tools: their arguments, risk and effect.

    Those of REF, else all built-in ones. Of a single tool, and with --json, the whole schema.

    Example: orchestrator tools view_file
    """
    from orchestrator.cli.interrupts import Interrupted
    from orchestrator.cli.output import out, out_json
    from orchestrator.render.terminal.tool_table import table, whole

    try:
        groups = _groups_of(ref)
    except Interrupted:
        return INTERRUPTED
    if json:
        names = ("name", "description", "parameters", "risk", "effect")
        out_json([{"group": group, **{n: getattr(t, n) for n in names}} for group, ts in groups.items() for t in ts])
        return COMPLETED
    out(table(groups))
    if ref is not None and len(those := [one for found in groups.values() for one in found]) == 1:
        out(whole(those[0]))
    return COMPLETED


def _groups_of(ref: str | None) -> dict[str, Sequence[Tool]]:
    """The tools of a reference by its name; all built-in ones without it, by their groups."""
    from orchestrator.cli.launch import load_tools
    from orchestrator.cli.output import warn
    from orchestrator.tools.refs import builtin_groups

    shipped = builtin_groups()
    if ref is not None and (not ref.isidentifier() or ref in shipped):
        return {ref: _known(load_tools([ref]))}
    groups: dict[str, Sequence[Tool]] = {}
    for name in shipped:
        try:
            groups[name] = _known(load_tools([name]))
        except UsageError as error:  # a group needs a package that is not installed
            if ref is None:
                warn(str(error))
    if ref is None:
        return groups
    # The name of one built-in tool, before that of a module, which may stand in the current directory.
    found: dict[str, Sequence[Tool]] = {
        name: one for name, those in groups.items() if (one := [t for t in those if t.name == ref])
    }
    return found or {ref: _known(load_tools([ref]))}


def _known(box: Toolbox) -> Sequence[Tool]:
    """The tools of a toolbox; those of servers are asked for.

    Raises:
        OrchestratorError: a server cannot be reached.
        Interrupted: a signal came; the servers that were started have been ended.
    """
    if box.ready:
        return box.tools

    async def ask() -> Sequence[Tool]:
        async with box:
            return box.tools

    from orchestrator.cli.interrupts import run_async

    return run_async(ask)
