"""The command `why`: what decided where a run went. It needs no code, only the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.views.explainer import RunExplanation


def why(
    run: options.Run,
    seq: Annotated[
        int | None,
        typer.Argument(
            metavar="SEQ",
            min=1,
            help="A record: the step that ended with it, or was running then. Default: the latest record.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Explain why a run is where it is.

    For a step: its cause (an edge, a join, an item, a spent limit), where it led, what decided that, and the edges that
    were not taken.

    Example: orchestrator why 3f2a9c1d 12
    """
    from orchestrator.cli.output import out, out_json
    from orchestrator.cli.run_lookup import loaded, one_run
    from orchestrator.cli.storage import store_url

    async def look(executor: Executor) -> RunExplanation:
        found = await loaded(executor, run)
        try:
            return found.why(seq)
        except ValueError as error:
            raise UsageError(str(error)) from None

    stand = one_run(store_url(store), run, look)
    out_json(stand.to_json()) if json else out(stand.to_text())
    return COMPLETED
