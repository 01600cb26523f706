"""Commands about graphs and tools: check, render, schema, graphs, tools."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator import render as drawings
from orchestrator._lazy import lazy_modules
from orchestrator.cli import environment, exits, options, signals, storage
from orchestrator.cli.explain_command import hint
from orchestrator.cli.graph_options import with_options
from orchestrator.cli.graph_refs import (
    absolute,
    graph_from_ref,
    is_file_ref,
    load_code,
    shape_from_ref,
    shipped,
    unknown,
)
from orchestrator.cli.launch_refs import load_tools
from orchestrator.cli.output import out, out_bytes, out_json, out_made, out_table, warn
from orchestrator.cli.short_ids import whole_id
from orchestrator.errors import ArrowSyntaxError, GraphUnknown, InvalidGraph, Problem
from orchestrator.graph.checks.all import report_of
from orchestrator.graph.report import CheckReport
from orchestrator.graph.writing import editor_line
from orchestrator.render import FORMATS
from orchestrator.render.terminal.tables import Column, tool_table, whole
from orchestrator.tools.refs import builtin_groups
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator import executor
    from orchestrator.cli import report as reports
    from orchestrator.cli import run_lookup
    from orchestrator.cli import trust as seals
    from orchestrator.executor import Run, VersionCheck
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.report import Proof, WitnessStep
    from orchestrator.nodes import file_schema
    from orchestrator.tools import Tool, Toolbox
    from orchestrator.views import overlay
else:  # checking and drawing a graph needs no executor
    (executor,) = lazy_modules("orchestrator", "executor")
    reports, run_lookup, seals = lazy_modules("orchestrator.cli", "report run_lookup trust")
    (overlay,) = lazy_modules("orchestrator.views", "overlay")
    (file_schema,) = lazy_modules("orchestrator.nodes", "file_schema")


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
    settings: options.Set = None,
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

    if (tools or draw) and not prove:
        given = " and ".join(name for name, value in (("--tools", tools), ("--draw", draw)) if value)
        raise exits.UsageError(f"{given} {'need' if tools and draw else 'needs'} --prove: add --prove")
    form = None if draw is None else _format(None, draw)
    graph = with_options(graph, settings)
    name, skipped, found = graph, tuple[str, ...](), None
    try:
        found, skipped = shape_from_ref(graph, trust or ())
        name, report = found.name, report_of(found, prove=prove, tools=tools_for_proofs(tools))
    except InvalidGraph as error:
        name, report = error.name, CheckReport(errors=error.problems)
    except ArrowSyntaxError as error:
        report = CheckReport(errors=(Problem("ArrowSyntaxError", str(error)),))
    runs = runs_against(graph, trust or (), against, store) if against is not None and not report.errors else None
    if json:
        proofs = {"proofs": [proof_data(proof) for proof in report.proofs]} if prove else {}
        out_json(
            {
                **_report_data(name, report, skipped),
                **proofs,
                **({} if runs is None else refused_data(runs)),
            }
        )
    else:
        out("\n".join((report_text(name, report, skipped), *([] if runs is None else refused_text(runs)))))
        if report.errors:
            warn(hint("", *(problem.code for problem in report.errors)))
    if draw is not None and form is not None and found is not None and not report.errors:
        warn(draw_witness(found, report.proofs, draw, form))
    broken = report.errors or any(not proof.holds for proof in report.proofs)
    return exits.FAILED if broken or (runs is not None and runs.refused) else exits.COMPLETED


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
    """Return the text that `check` prints: problems and notes, and proofs if requested."""

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
    settings: options.Set = None,
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

    form = _format(format, output)
    if other is not None and form != "html":
        raise exits.UsageError("two runs can only be drawn as a page: use --format html, or -o FILE.html")
    try:
        if other is None:
            made = drawings.render(_subject(with_options(what, settings), at, store, trust or ()), form)
        else:
            one, two = (_a_run(name, at, store) for name in (what, other))
            made = one.to_html(two)
    except drawings.RenderError as error:
        raise exits.UsageError(str(error)) from None
    if output is not None:
        if form == "yaml" and isinstance(made, str):
            made = editor_line(output) + made
        output.write_bytes(made if isinstance(made, bytes) else made.rstrip("\n").encode() + b"\n")
        warn(f"wrote {output}")
    elif isinstance(made, bytes):
        return _bytes(made)
    else:
        out(made.rstrip("\n"), exact=True)
    return exits.COMPLETED


def _a_run(name: str, at: int | None, store: str | None) -> Run:

    return run_lookup.load(storage.store_url(store), name, at)


def _bytes(made: bytes) -> int:

    if sys.stdout.isatty():
        raise exits.UsageError("a picture cannot be shown in a terminal: name a file with -o")
    out_bytes(made)
    return exits.COMPLETED


def _format(given: str | None, output: Path | None) -> str:

    if given is None and output is not None and output.suffix:
        found = SUFFIXES.get(output.suffix.lower())
        if found is None:
            raise exits.UsageError(
                f"no format has the suffix {output.suffix!r}: use --format with one of {', '.join(FORMATS)}"
            )
        return found
    form = given or "text"
    if form not in FORMATS:
        raise exits.UsageError(f"unknown format {form!r}; choose one of {', '.join(FORMATS)}")
    return form


def _subject(what: str, at: int | None, store: str | None, trust: Sequence[str]) -> GraphDefinition | Run:

    if not is_file_ref(what) and (at is not None or what not in shipped()):
        run = run_lookup.find_run(what, store, at)
        if run is None and not environment.is_installed(what):
            whole = whole_id(what, store)
            run = None if whole is None else run_lookup.find_run(whole, store, at)
        if run is not None:
            return run
    if at is not None:
        raise exits.UsageError(f"--at needs a run, and this store has no run {what!r}")
    try:
        if not is_file_ref(what) and what not in shipped() and not environment.is_installed(what):
            # A run id that is mistyped or from another store must not import a module with that name from here.
            raise unknown(what, "it is neither a shipped graph nor an installed module")
        found, skipped = shape_from_ref(what, trust)
    except GraphUnknown as error:
        if is_file_ref(what):
            raise
        raise GraphUnknown(f"this store has no run {what!r}, and {error}") from None
    if skipped:
        warn(f"{what} is drawn without its code; --trust imports it")
    return found


def tools_for_proofs(refs: Sequence[str] | None) -> Sequence[Tool] | None:
    """Return the tools of references; None without references, since the tools are then unknown."""

    return None if not refs else known_tools(load_tools(refs))


def proof_lines(proofs: Sequence[Proof]) -> list[str]:
    """Return a line for each claim, with its reason and the path that breaks it."""

    found = []
    for proof in proofs:
        tool = f" (graph of tool {proof.tool})" if proof.tool else ""
        found.append(f"  {proof.verdict:<9}  {line(proof.claim + tool)}")
        if proof.reason:
            found.append(f"             {line(proof.reason)}")
        found += [f"             {line(path_text(path))}" for path in (proof.witness, proof.beside) if path]
    return found


def path_text(path: Sequence[WitnessStep]) -> str:
    """Return a path in one line. Starts of inner graphs are omitted: their first nodes imply them."""
    return " -> ".join(str(step) for step in path if not step.node.endswith("/START"))


def proof_data(proof: Proof) -> dict[str, object]:
    """Return a proof as JSON."""
    paths = {
        name: [{"node": step.node, "outcome": step.outcome, "note": step.note} for step in path]
        for name, path in (("witness", proof.witness), ("beside", proof.beside))
    }
    return {
        "about": proof.about,
        "claim": proof.claim,
        "verdict": proof.verdict,
        "reason": proof.reason,
        "tool": proof.tool,
        **paths,
    }


def draw_witness(graph: GraphDefinition, proofs: Sequence[Proof], file: Path, form: str) -> str:
    """Draw the first path that breaks a claim into a file, and return a message about it."""

    broken = sorted((proof for proof in proofs if proof.witness), key=lambda proof: proof.verdict != "refuted")
    own = [proof for proof in broken if not proof.tool]
    if not own:
        return "no path breaks a claim, so nothing was drawn"
    if form in ("html", "yaml"):
        raise exits.UsageError(f"{form} cannot show a path: use the suffix .svg, .png, .dot, .mmd or .txt")
    made = drawings.render(graph, form, overlay.witness_overlay(graph, own[0]))
    file.write_bytes(made if isinstance(made, bytes) else made.rstrip("\n").encode() + b"\n")
    return f"wrote {file}: {own[0].verdict}, {own[0].claim}"


def schema(
    modules: Annotated[
        list[str] | None, typer.Argument(metavar="MODULE", help="Modules or files with your own node kinds.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
) -> int:
    """Print the JSON Schema of graph files, for editors.

    Graph.save and `render -o FILE.yaml` name it in the first line of a YAML file if it is in graph.schema.json, in the
    file's folder or above it.

    Example: orchestrator schema -o graph.schema.json
    """
    for module in modules or ():
        load_code(module)
    text = json_text.dumps(file_schema.file_schema(), indent=1)
    if output is None:
        out(text, exact=True)
    else:
        output.write_text(f"{text}\n", encoding="utf-8")
        warn(f"wrote {output}; a YAML file beside it begins with:\n# yaml-language-server: $schema={output.name}")
    return exits.COMPLETED


def graphs(json: options.Json = False, store: options.Store = None) -> int:
    """List the graphs that come with the library.

    Example: orchestrator graphs
    """

    found = {name: graph_from_ref(name) for name in shipped()}
    if json:
        out_json([{"name": name, "description": graph.description} for name, graph in found.items()])
        return exits.COMPLETED
    out_table(
        (Column("graph"), Column("what it does", least=24)),
        [(name, graph.description) for name, graph in found.items()],
    )
    return exits.COMPLETED


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

    Without REF, lists all built-in tools. For a single tool, and with --json, shows the whole schema.

    Example: orchestrator tools view_file
    """

    others: list[str] = []
    try:
        groups = _groups_of(ref, others)
    except signals.Interrupted:
        return exits.INTERRUPTED
    if json:
        names = ("name", "description", "parameters", "risk", "effect")
        out_json([{"group": group, **{n: getattr(t, n) for n in names}} for group, ts in groups.items() for t in ts])
        return exits.COMPLETED
    out_made(partial(tool_table, groups))
    if ref is not None and len(those := [one for found in groups.values() for one in found]) == 1:
        out(whole(those[0]))
    if others:
        out("\nbesides tools:")
    for offered in others:
        out(f"  {offered}")
    return exits.COMPLETED


def _groups_of(ref: str | None, others: list[str]) -> dict[str, Sequence[Tool]]:
    """Return the tools of a reference by its name; without a reference, all built-in tools by group.

    Args:
        ref: the reference.
        others: receives what servers have besides tools.
    """

    shipped = builtin_groups()
    if ref is not None and (not ref.isidentifier() or ref in shipped):
        return {ref: known_tools(load_tools([ref]), others)}
    groups: dict[str, Sequence[Tool]] = {}
    for name in shipped:
        try:
            groups[name] = known_tools(load_tools([name]))
        except exits.UsageError as error:  # the group needs a package that is not installed
            if ref is None:
                warn(str(error))
    if ref is None:
        return groups
    # A built-in tool's name takes precedence over a module in the current directory.
    found: dict[str, Sequence[Tool]] = {
        name: one for name, those in groups.items() if (one := [t for t in those if t.name == ref])
    }
    return found or {ref: known_tools(load_tools([ref]))}


def known_tools(box: Toolbox, others: list[str] | None = None) -> Sequence[Tool]:
    """Return the tools of a toolbox; tools of servers are fetched.

    Args:
        box: the toolbox.
        others: receives what servers have besides tools, one a line; None: they are not asked.

    Raises:
        OrchestratorError: a server cannot be reached.
        Interrupted: a signal arrived; the started servers have been stopped.
    """
    if box.ready:
        return box.tools

    async def ask() -> Sequence[Tool]:
        async with box:
            for one in box.connections:
                offers = getattr(one, "offers", None)
                if others is not None and offers is not None:
                    others.extend(map(line, await offers()))
            return box.tools

    return signals.run_async(ask)


RUNS = "runs"
"""The value of `--against` that means the store of `--store`."""


@dataclass(frozen=True)
class CheckedRuns:
    """The runs of a store that were compared with a version of their graph."""

    all: Sequence[VersionCheck]
    commands: reports.NextCommands
    graph: str
    trust: Sequence[str]
    url: str

    @property
    def refused(self) -> list[VersionCheck]:
        """Runs that would be refused, those that need the most changes first."""
        found = [one for one in self.all if one.refused]
        return sorted(found, key=lambda one: one.grade != "migration")

    def command(self, one: VersionCheck) -> str | None:
        """Return the command that continues a run in the new version; None if unknown."""
        if one.options is None:
            return None
        known = one.refs.get("graph") == self.graph and seals.trusted(one.root_id, one.refs, self.url)
        modules = [word for module in self.trust for word in ("--trust", module)]
        own = () if known else ("--graph", self.graph, *modules)
        return self.commands.resume(one.run_id, *one.options, *own)


def runs_against(graph: str, trust: Sequence[str], against: str, store: str | None) -> CheckedRuns:
    """Compare the runs of a store with a graph.

    Args:
        graph: the reference of the graph. Its code is imported.
        trust: modules whose code a graph file may name.
        against: `runs`, or the URL of a store.
        store: the value of `--store`.

    Raises:
        UsageError: there is no such store.
        GraphUnknown, UntrustedCode: the graph's code is missing, or not trusted.
    """

    if against != RUNS and "://" not in against:
        raise exits.UsageError(f"--against {against}: use runs, or the URL of a store")
    where = store if against == RUNS else against
    url = storage.store_url(where)
    if where is not None and not storage.exists(url):
        raise exits.UsageError(f"--against {against}: there is no store at {storage.shown_url(url)}")
    found = graph_from_ref(graph, None, trust)

    async def compare() -> list[VersionCheck]:
        async with executor.Executor(url, codec=storage.codec_of_environment()) as opened:
            return await opened.graphs.check_runs(found)

    checked = signals.run_async(compare) if storage.exists(url) else []
    return CheckedRuns(checked, reports.NextCommands(where), absolute(graph), trust, url)


def refused_data(runs: CheckedRuns) -> dict[str, object]:
    """Return the runs as plain JSON: those that would be refused, and those that could not be read."""
    return {
        "runs": len(runs.all),
        "refused": [
            {
                "run_id": one.run_id,
                "status": one.status,
                "at": list(one.at),
                "grade": one.grade,
                "changes": list(one.changes),
                "command": runs.command(one),
                "guesses": list(one.guesses),
                "undecided": {name: list(found) for name, found in one.undecided.items()},
            }
            for one in runs.refused
        ],
        "unread": [{"run_id": one.run_id, "fault": one.fault} for one in runs.all if one.fault],
    }


def _ways(command: str | None, one: VersionCheck) -> Iterator[str]:
    """Yield lines with the ways to continue a run."""
    if command is not None:
        yield f"to continue it: {command}"
    elif not one.undecided:
        yield "no command is known that continues it"
    for name, found in one.undecided.items():
        listed = line(" or ".join(found))
        yield f"state field {line(name)} may have become {listed}: name one with --rename state.{line(name)}=NEW"
        yield f"  of `resume`, or give its value up with --drop state.{line(name)}"
    if command is not None and one.guesses:
        yield "this is a guess, check it first:"
        yield from (f"  {line(guess)}" for guess in one.guesses)


def refused_text(runs: CheckedRuns) -> Iterator[str]:
    """Return the runs as lines of text."""
    yield f"  {len(runs.refused)} of {len(runs.all)} runs would be refused"
    for one in runs.refused:
        yield f"  {one.grade:<10} {line(one.run_id)}  {one.status} at {line(', '.join(one.at))}"
        yield from (f"    - {line(change)}" for change in one.changes)
        yield from (f"    {text}" for text in _ways(runs.command(one), one))
    for one in runs.all:
        if one.fault:
            yield f"  unread     {line(one.run_id)}: {line(one.fault)}"
