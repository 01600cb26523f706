"""A nightly batch: each row of a table is sorted by a model, complaints become tickets, and a report says what failed.

python nightly.py feedback.csv    # exit code 1 if rows failed; on the same day, it goes on with the same run
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Annotated, TextIO

import anyio
from pydantic import BaseModel

from orchestrator import App, Context, Executor, Graph, Limits, Retry, ToolResult, Update, append, node, tool
from orchestrator.errors import RunUnknown
from orchestrator.models import Model, ModelRequest, model_from_ref
from orchestrator.nodes import ITEM, Classify, Subgraph
from orchestrator.testing import ScriptedModel
from orchestrator.tools import IdempotencyKey

STORE = "sqlite:///.orchestrator/runs.db"  # the store that the command line uses by default
TICKETS, REPORT = Path("tickets.csv"), Path("report.md")
COLUMNS = ["row", "customer", "text"]


class Row(BaseModel):
    row: dict[str, str]
    text: str = ""
    kind: str = ""
    ticket: str = ""
    line: dict[str, str] = {}
    """What became of it: a line of the report."""


class Batch(BaseModel):
    file: str
    rows: list[dict[str, str]] = []
    lines: Annotated[list[dict[str, str]], append] = []
    failed: int = 0


def was_opened(key: str) -> ToolResult | None:
    """Find out after a crash if a ticket was opened: at night no person can answer."""
    lines = TICKETS.read_text(encoding="utf-8").splitlines() if TICKETS.exists() else []
    return ToolResult(output=key[:8]) if any(line.startswith(f"{key[:8]},") for line in lines) else None


@tool(risk="write", effect="irreversible", reconcile=was_opened)
def open_ticket(customer: str, text: str, key: IdempotencyKey) -> str:
    """Open a ticket and return its number."""
    with TICKETS.open("a", encoding="utf-8", newline="") as tickets:  # a real batch calls a service, with the key
        csv.writer(tickets).writerow([key[:8], customer, text])
    return key[:8]


@node(tools=[])
def check(state: Row) -> Update:
    """Refuse a row that could not be read, or has no text."""
    if state.row["fault"] or not state.row["text"].strip():
        raise ValueError(state.row["fault"] or "the text is empty")
    return {"text": state.row["text"]}


@node(tools=[open_ticket])
async def complain(state: Row, ctx: Context) -> Update:
    """Open a ticket for a complaint."""
    opened = await ctx.tool("open_ticket", customer=state.row["customer"], text=state.text, check=True)
    return {"kind": "complaint", "ticket": opened.output}


@node(tools=[], effect="pure")
def note(state: Row, ctx: Context) -> Update:
    """Write the line of the report, also of a row that failed."""
    problem = ctx.error.message if ctx.error else ""
    return {"line": state.row | {"kind": state.kind, "ticket": state.ticket, "problem": problem}}


one_row = Graph(
    name="row",
    state=Row,
    nodes={
        "check": check,
        "sort": Classify(
            text="text",
            choices={"complaint": "something is wrong or broken", "other": "praise, a question or anything else"},
            result="kind",
            retry=Retry(attempts=4, wait=0.2),
        ),
        "complain": complain,
        "note": note,
    },
    edges="""
        START -> check -> sort
        sort -> complain : complaint
        sort -> note : other
        complain -> note -> END
        check, sort, complain -> note : error
    """,
)


def rows_of(file: TextIO) -> Iterator[dict[str, str]]:
    """Yield the rows of a table. `fault` says why one cannot be read: `check` refuses it, and the report names it."""
    table = csv.DictReader(file, restkey="more", restval="", strict=True)
    if table.fieldnames != COLUMNS:
        raise ValueError(f"the first line of {file.name} must be {','.join(COLUMNS)}")
    while True:
        row, begin, fault = dict.fromkeys(COLUMNS, ""), table.reader.line_num + 1, ""
        try:
            row |= next(table)
        except StopIteration:
            return
        except csv.Error as error:  # such as a quote that nothing closes: all that follows is in this row
            row["row"], fault = f"line {begin}", f"{error}, up to line {table.reader.line_num}"
        if row.pop("more", None):
            fault = f"more than {len(COLUMNS)} columns"
        elif "\N{REPLACEMENT CHARACTER}" in "".join(row.values()):
            fault = "not UTF-8"
        yield row | {"fault": fault}


@node(tools=[])
def load(state: Batch) -> Update:
    """Read the table. The rows are in the journal from here on, so a file that changes meanwhile changes nothing."""
    with Path(state.file).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return {"rows": list(rows_of(file))}


@node(tools=[], join="all")
def report(state: Batch) -> Update:
    """Write the report. Writing it again after a crash does no harm."""
    failed = [line for line in state.lines if line["problem"]]
    columns = ("row", "customer", "kind", "ticket", "problem")
    table = [" | ".join(columns), " | ".join("---" for _ in columns)]
    table += [" | ".join(" ".join(line[name].replace("|", "/").split()) for name in columns) for line in state.lines]
    said = f"# {state.file}\n\n{len(state.lines)} rows, {len(failed)} failed\n\n"
    REPORT.write_text(said + "".join(f"| {row} |\n" for row in table), encoding="utf-8")
    return {"failed": len(failed)}


graph = Graph(
    name="nightly",
    state=Batch,
    input="file",
    nodes={"load": load, "row": Subgraph(one_row, inputs={"row": ITEM}, outputs={"lines": "line"}), "report": report},
    edges="""
        START -> load
        load -> row : each rows
        row -> report -> END
    """,
    output="failed",
    limits=Limits(steps=100_000, concurrency=2),
)


async def sort_by_rule(request: ModelRequest) -> str:
    """Stand for a model that is slow, and whose server does not answer the first time it is asked about a lamp."""
    await anyio.sleep(0.5)
    text = request.messages[-1].content.rpartition("Text:")[2]
    if "lamp" in text and text not in refused:
        refused.add(text)
        raise ConnectionError("the model's server does not answer")
    return "complaint" if "broke" in text else "other"


refused: set[str] = set()


def chosen_model() -> Model:
    """Return the model that ORCHESTRATOR_MODEL names, such as `openai:gpt-5-mini`; else a rule that needs no key."""
    name = os.environ.get("ORCHESTRATOR_MODEL")
    return model_from_ref(name) if name else ScriptedModel(sort_by_rule, name="rules")


app = App(graphs=[graph], model=chosen_model())  # for `orchestrator worker --app nightly:app`


async def main(file: str) -> int:
    run_id = f"{Path(file).stem}-{date.today()}"
    async with Executor(STORE, graphs=[graph], model=chosen_model()) as executor:
        with suppress(RunUnknown):
            if (await executor.load(run_id)).status == "failed":  # at an earlier start: its cause may be gone
                await executor.resume(run_id, retry=True)
        run = await executor.start(graph, file, run_id=run_id)
    if run.error:
        print(f"{run_id}: {run.status}: {run.error.message}")
        return 1
    print(f"{run_id}: {run.status}, {run.output} rows failed, see {REPORT}")
    return 0 if run.output == 0 else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1]))
