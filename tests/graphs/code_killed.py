"""A run of `code_act` that waits for a person in the middle of its code, in a process that is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from orchestrator import Executor, Graph
from orchestrator.strategies.code_act import code_act
from orchestrator.testing import ScriptedModel
from orchestrator.tools import Tool, tool

CODE = """\
found = search(query="old files")
print("found", found)
for name in found:
    print(name, delete(name=name))
print("note", note("deleted " + str(len(found))))"""
REPLIES = [f"I look for them.\n```python\n{CODE}\n```", "Both are gone."]


def graph() -> Graph:
    """The graph of the run."""
    return code_act(name="tidy")


def tools(folder: Path) -> list[Tool]:
    """Tools that write a line for each call."""

    def called(line: str) -> None:
        with (folder / "calls.txt").open("a") as file:
            file.write(f"{line}\n")

    @tool(risk="read", effect="read")
    def search(query: str) -> list[str]:
        """Search files."""
        called(f"search {query}")
        return ["a.txt", "b.txt"]

    @tool(risk="dangerous", effect="irreversible")
    def delete(name: str) -> str:
        """Delete a file."""
        called(f"delete {name}")
        return "deleted"

    @tool(risk="none", effect="idempotent")
    def note(text: str) -> str:
        """Write a note."""
        called(f"note {text}")
        return "written"

    return [search, delete, note]


def calls(folder: Path) -> list[str]:
    """The calls that were made, in all processes."""
    return (folder / "calls.txt").read_text().splitlines()


def model(replies: list[str]) -> ScriptedModel:
    """A model that gives these replies."""
    return ScriptedModel({"think": replies})


async def main(store: str, folder: str) -> None:
    """Start the run, write its id when it waits, and wait to be killed."""
    async with Executor(store=store, graphs=[graph()], model=model(REPLIES), tools=tools(Path(folder))) as executor:
        run = await executor.start(graph(), "Delete the old files.")
        assert run.status == "paused"
        print(run.run_id, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
