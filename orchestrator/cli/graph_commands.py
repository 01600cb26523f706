"""Commands about one graph: check, render."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, FAILED, UsageError
from orchestrator.errors import GraphUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.executor import Run
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.report import CheckReport

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


def check(
    graph: options.Graph,
    trust: options.Trust = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Also prove claims about all runs of the graph, or show what breaks them.")
    ] = False,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="REF", help="For --prove: the tools that runs will be given. Repeatable."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option("--draw", metavar="FILE", help="With --prove, draw the first path that breaks a claim."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="runs|URL",
            help="Also list the runs of the store, or of the one at URL, that this version would refuse.",
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Check a graph and list every problem.

    Notes point out what is allowed but often unintended. Exit code 1 if there is a problem, with --against if a run
    would be refused, and with --prove if a claim is not proved. Code that a YAML or JSON file names is imported only
    with --trust; without it, the command lists what it did not check.

    Example: orchestrator check essay.py:essay
    """
    from orchestrator.cli.graphrefs import shape_from_ref
    from orchestrator.cli.output import out, out_json, warn
    from orchestrator.cli.proof_report import draw_witness, proof_data, tools_for_proofs
    from orchestrator.cli.version_check import refused_data, refused_text, runs_against
    from orchestrator.errors import ArrowSyntaxError, InvalidGraph, Problem
    from orchestrator.graph.checks.all import report_of
    from orchestrator.graph.report import CheckReport

    if (tools or draw) and not prove:
        raise UsageError("--tools and --draw belong to --prove: add --prove")
    form = None if draw is None else _format(None, draw)
    name, skipped, found = graph, tuple[str, ...](), None
    try:
        found, skipped = shape_from_ref(graph, trust or ())
        name, report = found.name, report_of(found, prove=prove, tools=tools_for_proofs(tools))
    except InvalidGraph as error:
        name, report = error.name, CheckReport(errors=error.problems)
    except ArrowSyntaxError as error:
        report = CheckReport(errors=(Problem("C1", str(error)),))
    runs = runs_against(graph, trust or (), against, store) if against is not None and not report.errors else None
    if json:
        proofs = {"proofs": [proof_data(proof) for proof in report.proofs]} if prove else {}
        out_json({**_report_data(name, report, skipped), **proofs, **({} if runs is None else refused_data(runs))})
    else:
        out("\n".join((report_text(name, report, skipped), *([] if runs is None else refused_text(runs)))))
    if draw is not None and form is not None and found is not None and not report.errors:
        warn(draw_witness(found, report.proofs, draw, form))
    broken = report.errors or any(not proof.holds for proof in report.proofs)
    return FAILED if broken or (runs is not None and runs.refused) else COMPLETED


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


def report_text(name: str, report: CheckReport, skipped: Sequence[str]) -> str:
    """What `check` prints: problems and notes, and the proofs if they were asked for."""
    from orchestrator.cli.proof_report import proof_lines
    from orchestrator.cli.words import line

    name, count = line(name), len(report.errors)
    head = f"{name}: {count} problem{'s' if count != 1 else ''}" if count else f"{name}: OK"
    if skipped and not count:
        head = f"{name}: no problem in what was checked"
    problems = [f"  {p.code}  {_indented(p.message)}" for p in report.errors]
    notes = [f"  note  {_indented(note)}" for note in report.notes]
    unseen = [f"  not checked without --trust  {line(one)}" for one in skipped]
    return "\n".join((head, *problems, *notes, *unseen, *proof_lines(report.proofs)))


def _indented(text: str) -> str:
    return text.replace("\n", "\n      ")


def render(
    what: Annotated[str, typer.Argument(metavar="GRAPH|RUN", help="A graph, or the id of a run.", show_default=False)],
    other: Annotated[
        str | None,
        typer.Argument(metavar="RUN2", help="A second run, for a page that compares both.", show_default=False),
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
            help="svg, png, dot, mermaid, text, html or yaml. Default: by the suffix of FILE, else text.",
        ),
    ] = None,
    store: options.Store = None,
) -> int:
    """Draw a graph, or a run over its graph.

    html is one file that works offline: the picture, a replay of the run, its steps, states, prompts and calls.

    Drawing a run needs only its store, not its code. A name of both a run and a module means the run. The name of a
    shipped graph, and a name with a colon or a file suffix, means a graph.

    Example: orchestrator render tool_user -o tool_user.svg
    """
    from orchestrator import render as drawings
    from orchestrator.cli.output import out, warn

    form = _format(format, output)
    if other is not None and form != "html":
        raise UsageError("two runs can only be drawn as a page: use --format html, or -o FILE.html")
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
    from orchestrator.cli.run_lookup import load
    from orchestrator.cli.storage import store_url

    return load(store_url(store), name, at)


def _bytes(made: bytes) -> int:
    import sys

    from orchestrator.cli.output import out_bytes

    if sys.stdout.isatty():
        raise UsageError("a picture cannot be shown in a terminal: name a file with -o")
    out_bytes(made)
    return COMPLETED


def _format(given: str | None, output: Path | None) -> str:
    from orchestrator.render import FORMATS

    if given is None and output is not None and output.suffix:
        found = SUFFIXES.get(output.suffix.lower())
        if found is None:
            raise UsageError(
                f"no format has the suffix {output.suffix!r}: use --format with one of {', '.join(FORMATS)}"
            )
        return found
    form = given or "text"
    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r}; choose one of {', '.join(FORMATS)}")
    return form


def _subject(what: str, at: int | None, store: str | None, trust: Sequence[str]) -> GraphDefinition | Run:
    from orchestrator.cli.environment import is_installed
    from orchestrator.cli.graphrefs import is_file_ref, shape_from_ref, shipped, unknown
    from orchestrator.cli.output import warn
    from orchestrator.cli.run_lookup import find_run

    if not is_file_ref(what) and (at is not None or what not in shipped()):
        run = find_run(what, store, at)
        if run is not None:
            return run
    if at is not None:
        raise UsageError(f"--at needs a run, and this store has no run {what!r}")
    try:
        if not is_file_ref(what) and what not in shipped() and not is_installed(what):
            # A run's id, mistyped or of another store, must not import what stands here under that name.
            raise unknown(what, "it is neither a shipped graph nor an installed module")
        found, skipped = shape_from_ref(what, trust)
    except GraphUnknown as error:
        if is_file_ref(what):
            raise
        raise GraphUnknown(f"this store has no run {what!r}, and {error}") from None
    if skipped:
        warn(f"{what} is drawn without its code; --trust imports it")
    return found
