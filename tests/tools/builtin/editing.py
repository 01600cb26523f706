"""A run that edits files, for processes that are killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, node
from orchestrator.tools.builtin.files import Files


class Work(BaseModel):
    """What the calls gave."""

    path: str = "docs/a.txt"
    said: list[str] = []


@node
async def edit(state: Work, ctx: Context[Any]) -> dict[str, object]:
    """Make a file, change it four times, take one of the changes back, and show it."""
    path = state.path
    calls: list[tuple[str, dict[str, object]]] = [
        ("create_file", {"text": "one\n"}), ("insert_in_file", {"line": 1, "text": "x"}),
        ("insert_in_file", {"line": 1, "text": "x"}), ("replace_in_file", {"old": "one", "new": "one one"}),
        ("undo_edit", {}), ("insert_in_file", {"line": 0, "text": "zero"}), ("view_file", {}),
    ]  # fmt: skip
    said = [(await ctx.tool(name, path=path, **args)).text for name, args in calls]
    return {"said": said}


graph = Graph(
    name="editing", state=Work, input="path", nodes={"edit": edit}, edges="START -> edit -> END", output="said"
)


def fresh() -> dict[str, Any]:
    """Tools on a root in which nothing is."""
    number = len(list(Path(os.environ["EDITING"]).iterdir()))
    root = Path(os.environ["EDITING"], str(number))
    root.mkdir()
    return {"tools": Files(root)}


async def go_on(root: str, store: str) -> None:
    """Begin the run, or go on with it."""
    async with Executor(store=store, graphs=[graph], tools=Files(root)) as executor:
        print("begun", flush=True)
        run = await executor.start(graph, "docs/a.txt", run_id="r")
        if run.status == "interrupted":
            run = await executor.resume("r")
        print(run.status, run.waiting, flush=True)


if __name__ == "__main__":
    anyio.run(go_on, sys.argv[1], sys.argv[2])
