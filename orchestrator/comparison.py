"""Comparison of several graphs on one question: their answers, time and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from orchestrator.errors import GraphUnknown, OrchestratorError
from orchestrator.executor import Executor
from orchestrator.executor.calls.limits import child_id
from orchestrator.render import to_svg
from orchestrator.render.svg import image_element
from orchestrator.stores import Codec, open_store
from orchestrator.tools import ToolsLike, toolbox_of
from orchestrator.views.run_cost import CompletedCall, critical_path, spending

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.graph.limits import Limits, Usage
    from orchestrator.graph_class import Graph
    from orchestrator.models import Model

_COLUMNS = ("graph", "status", "answer", "model calls", "rounds", "prompt", "completion", "tool calls", "seconds")
_WIDEST = 40
"""Maximum number of characters of an answer that a table shows."""


@dataclass(frozen=True)
class Compared:
    """The result of one graph."""

    run: Run
    model_calls: int
    """Model replies in this run and in the runs of graphs that it called as tools."""
    tool_calls: int
    rounds: int
    """Length of the longest chain of model calls that had to wait for each other."""
    usage: Usage

    @property
    def graph(self) -> str:
        """The graph's name."""
        return self.run.graph

    @property
    def answer(self) -> Any:
        """The run's output, or its error if it failed."""
        return self.run.output if self.run.error is None or self.run.status == "exhausted" else str(self.run.error)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "graph": self.graph,
            "run_id": self.run.run_id,
            "status": self.run.status,
            "answer": self.answer,
            "model_calls": self.model_calls,
            "rounds": self.rounds,
            "prompt_tokens": self.usage.input_tokens,
            "completion_tokens": self.usage.output_tokens,
            "tool_calls": self.tool_calls,
            "cost": self.usage.cost,
            "seconds": self.run.seconds,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the result as a row of a table."""
        answer = " ".join(str(self.answer).split())
        answer = answer if len(answer) <= _WIDEST else answer[: _WIDEST - 1] + "…"
        numbers = (self.model_calls, self.rounds, self.usage.input_tokens, self.usage.output_tokens, self.tool_calls)
        return (self.graph, self.run.status, answer, *map(str, numbers), f"{self.run.seconds:.2f}")


@dataclass(frozen=True)
class Comparison:
    """The results of several graphs for one question, in the order of the graphs."""

    question: str
    rows: tuple[Compared, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain JSON."""
        return {"question": self.question, "rows": [row.to_json() for row in self.rows]}

    def to_text(self) -> str:
        """Return the results as a table of text, with tokens as `prompt` and `completion`."""
        lines = [_COLUMNS, *(row.cells() for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
        return "\n".join(
            "  ".join(
                f"{cell:{'<' if column < 3 else '>'}{width}}"
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def save(self, directory: str | Path) -> list[Path]:
        """Write a picture of each run, `NAME.svg` (or `NAME-2.svg` if there are two), and the table as JSON.

        Raises:
            OSError: a file cannot be written.
        """
        import json

        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        files: list[Path] = []
        for row in self.rows:
            same = sum(other.graph == row.graph for other in self.rows[: len(files)])
            file = place / (f"{row.graph}-{same + 1}.svg" if same else f"{row.graph}.svg")
            file.write_text(to_svg(row.run.definition, row.run), encoding="utf-8")
            files.append(file)
        table = place / "comparison.json"
        table.write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return [*files, table]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the table, and below it the picture of each run, for notebooks."""
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row.cells()) + "</tr>" for row in self.rows)
        pictures = "".join(_figure(row.run) for row in self.rows)
        table = f"<p>{escape(self.question)}</p><table><tr>{head}</tr>{body}</table>{pictures}"
        return {"text/html": table, "text/plain": self.to_text()}


def _figure(run: Run) -> str:
    return f"<figure><figcaption>{escape(run.graph)}</figcaption>{image_element(to_svg(run.definition, run))}</figure>"


async def compare(
    question: str,
    graphs: Sequence[Graph],
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    tools: ToolsLike = (),
    deps: object = None,
    store: str = "memory://",
    approve: str | None = None,
    limits: Limits | None = None,
    labels: Mapping[str, str] | None = None,
    codec: Codec | None = None,
) -> Comparison:
    """Run each graph on the question, one after the other, with the same models and tools.

    A run that fails, pauses or is interrupted is a row like any other, with its status.

    Args:
        question: the input of every run.
        graphs: the graphs; each takes the question as its input.
        model: the model of nodes that name none.
        models: named models, by the names that nodes use.
        tools: tools, functions, toolboxes, references such as `arithmetic`, or a list of them.
        deps: the value of `ctx.deps` in nodes. Never journaled.
        store: the URL of the store for the runs.
        approve: approve calls of tools up to this risk without asking.
        limits: the limits of each run; the explicitly set fields replace those of its graph.
        labels: labels of every run.
        codec: encrypts the values in the store; see `Executor`.

    Returns:
        A row for each graph, in the order of `graphs`.

    Raises:
        GraphUnknown: a graph needs a model or tool that is missing.
        InvalidInput: a graph does not take a question.
    """
    rows: list[Compared] = []
    tools = toolbox_of(tools)
    kept = open_store(store, codec=codec)
    try:
        for graph in graphs:
            # One executor for each graph: two configurations of one strategy have the same name.
            async with Executor(
                kept, graphs=[graph], model=model, models=models or {}, tools=tools, deps=deps
            ) as executor:
                run_id = await executor.submit(graph, question, labels=labels, approve=approve, limits=limits)
                try:
                    run = await executor.wait(run_id)
                except GraphUnknown:
                    raise
                except OrchestratorError:  # the error is in the run
                    run = await executor.load(run_id)
                rows.append(await compared_run(executor, run))
    finally:
        with anyio.CancelScope(shield=True):
            await kept.close()
    return Comparison(question, tuple(rows))


async def compared_run(executor: Executor, run: Run) -> Compared:
    """Return what a run spent, together with the runs that it started."""
    children = [
        await compared_run(executor, await executor.load(child.run_id))
        for child in (await executor.runs(labels={"parent": run.run_id}, limit=200)).runs
    ]
    begun = {child.run.run_id: child for child in children}
    records = await executor.store.read(run.run_id)
    spent = spending(records)

    def rounds_of(call: CompletedCall) -> float:
        key = call.intended.key
        if call.intended.kind == "model":
            return 1
        child = begun.get(child_id(run.run_id, key))
        return 0 if child is None else child.rounds

    usage = spent.usage
    for child in children:
        usage += child.usage
    return Compared(
        run,
        model_calls=spent.calls["model"] + sum(child.model_calls for child in children),
        tool_calls=spent.calls["tool"] + sum(child.tool_calls for child in children),
        rounds=int(critical_path(run.plan, records, rounds_of)),
        usage=usage,
    )
