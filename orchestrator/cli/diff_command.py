"""The command `diff`: how two runs differ. It needs no code, only the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED

if TYPE_CHECKING:
    from orchestrator.executor import Executor, RunDiff


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
    from orchestrator.cli.output import out, out_json, warn
    from orchestrator.cli.redaction import redacted
    from orchestrator.cli.run_lookup import one_run
    from orchestrator.cli.storage import store_url

    async def compare(executor: Executor) -> RunDiff:
        found = await executor.diff(run, other)
        if page is not None:
            page.write_text(found.to_html().rstrip("\n") + "\n", encoding="utf-8")
        return found

    found = one_run(store_url(store), run, compare)
    if page is not None:
        warn(f"wrote {page}")
    out_json(redacted(found.to_json())) if json else out(found.to_text())
    return COMPLETED
