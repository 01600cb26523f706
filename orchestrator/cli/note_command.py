"""The command `note`: writes, lists and deletes notes and scores on runs and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import environment, exits, options, run_lookup, storage
from orchestrator.cli.output import out, out_json, redacted, warn
from orchestrator.render.terminal.run_report import note_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.executor import Executor
    from orchestrator.stores import Note


def note(
    run: options.Run,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What to write.", show_default=False)] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="SEQ", min=1, help="The step that record SEQ ended, as `show` prints it."),
    ] = None,
    score: Annotated[float | None, typer.Option("--score", metavar="NUMBER", help="A score.")] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What the score measures, or what kind of note it is.")
    ] = "",
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Your name. Default: your user name.")] = None,
    delete: Annotated[str | None, typer.Option("--delete", metavar="ID", help="Delete the note with this id.")] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Write a note or a score on a run, or list them.

    Without TEXT and --score, lists the notes of the run, or of one step. Notes are beside the journal: no run sees
    them. They are exported and deleted with their run.

    Example: orchestrator note 3f2a9c1d "wrong city" --step 12 --score 0.2 --name correctness
    """
    writes = text is not None or score is not None
    if delete is not None and (writes or step is not None or name):
        raise exits.UsageError("--delete takes no text, --step, --score or --name")
    if name and not writes:
        raise exits.UsageError("--name belongs to a note: give a TEXT or --score")
    who = environment.user_name() if by is None else by

    async def act(executor: Executor) -> Sequence[Note]:
        if delete is not None:
            if not await executor.notes.delete(run, delete):
                raise exits.UsageError(f"run {run} has no note {delete}; `orchestrator note {run}` lists them")
            return ()
        if writes:
            return [await executor.notes.write(run, text or "", step=step, score=score, name=name, by=who)]
        return await executor.notes.list(run, step=step)

    found = run_lookup.one_run(storage.store_url(store), run, act, writes=writes or delete is not None)
    if json:
        out_json([redacted(dict(one.data())) for one in found])
    elif delete is not None:
        warn(f"deleted note {delete}")
    else:
        for line in note_lines(found, ids=True):
            out(line)
        if not found:
            warn(f"run {run} has no notes" + (f" on record {step}" if step is not None else ""))
    return exits.COMPLETED
