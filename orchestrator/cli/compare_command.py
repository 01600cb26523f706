"""Commands that compare: `compare`, several graphs for one question, and `diff`, two runs of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import exits, options, run_lookup, signals, storage
from orchestrator.cli.launch_refs import Given
from orchestrator.cli.output import out, out_json, out_table, redacted, warn
from orchestrator.cli.run_session import closing_model
from orchestrator.comparison import compare as compared
from orchestrator.render.terminal.tables import Cell, Column
from orchestrator.render.terminal.texts import STATUS

if TYPE_CHECKING:
    from orchestrator.comparison import Comparison
    from orchestrator.executor import Executor, RunDiff


def compare(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="The question for each graph.", show_default=False)
    ],
    graphs: Annotated[
        list[str], typer.Argument(metavar="GRAPH...", help="The graphs, named as for `run`.", show_default=False)
    ],
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
    approve: options.Approve = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write pictures of the runs, and the table as JSON, to DIR."
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Run several graphs on one question and compare them.

    All use the same model and tools. `rounds` counts model calls one after the other; concurrent calls are one round.
    Exit code 1 if a graph did not complete.

    Example: orchestrator compare "What is 20+(2*4)?" tool_user react rewoo --approve none
    """

    risk, url = options.risk(approve), storage.store_url(store)
    launches = [Given.of(graph, tools, model, trust).new() for graph in graphs]
    codes = [launch.load() for launch in launches[:1]] + [launch.quiet().load() for launch in launches[1:]]
    code = codes[0]

    async def work() -> Comparison:
        graphs = [one.graph for one in codes]
        async with closing_model(code):
            return await compared(
                question, graphs, model=code.model, models=code.models, tools=code.tools, store=url, approve=risk
            )

    try:
        found = signals.run_async(work)
    except signals.Interrupted:
        warn("interrupted; `orchestrator runs` lists the runs that can be resumed")
        return exits.INTERRUPTED
    out_json(redacted(found.to_json())) if json else _show(found)
    if output is not None:
        for file in found.save(output):
            warn(f"wrote {file}")
    return exits.COMPLETED if all(row.run.status == "completed" for row in found.rows) else exits.FAILED


def _show(found: Comparison) -> None:

    numbers = ("model calls", "rounds", "prompt", "completion", "tool calls", "seconds")
    columns = (
        Column("graph", least=12),
        Column("status"),
        Column("answer", least=16),
        *(Column(name, right=True) for name in numbers),
    )
    rows: list[tuple[Cell | str, ...]] = [
        (
            row.graph,
            Cell(row.run.status, STATUS.get(row.run.status, "")),
            " ".join(str(redacted(str(row.answer))).split()),
            *row.cells()[3:],
        )
        for row in found.rows
    ]
    out_table(columns, rows)


def diff(
    run: options.Run,
    other: Annotated[str, typer.Argument(metavar="RUN2", help="The id of the other run.", show_default=False)],
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write a page of both runs side by side to FILE.")
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Show how two runs differ.

    Compares prompts, results, answers, states, outcomes and what both spent; the first difference comes first. The
    runs may be of different versions of a graph, or of different graphs.

    Example: orchestrator diff 3f2a9c1d 77b0e4aa
    """

    async def compare(executor: Executor) -> RunDiff:
        found = await executor.diff(run, other)
        if page is not None:
            page.write_text(found.to_html().rstrip("\n") + "\n", encoding="utf-8")
        return found

    found = run_lookup.one_run(storage.store_url(store), run, compare)
    if page is not None:
        warn(f"wrote {page}")
    out_json(redacted(found.to_json())) if json else out(found.to_text())
    return exits.COMPLETED
