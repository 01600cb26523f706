"""The measured table of docs/strategies/README.md: the same question for every strategy.

`python -m tests.graphs.choice` writes it anew.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import anyio

from orchestrator import Graph, OfflineModel
from orchestrator.cli.graph_refs import shipped
from orchestrator.comparison import Compared, compare
from orchestrator.tools import tools_from_ref

PAGE = Path(__file__).parents[2] / "docs" / "strategies" / "README.md"
BEGIN, END = "<!-- measured: python -m tests.graphs.choice -->\n", "<!-- end -->"
QUESTION = "What is (3+4)*(10-2)?"
_HEAD = """
| strategy | answer | model calls | calls on the critical path | prompt tokens | completion tokens | tool calls |
|---|---|---|---|---|---|---|
"""


def graphs() -> list[Graph]:
    """Every strategy that ends by itself, in its default form, by name."""
    return [import_module(f"orchestrator.strategies.{name}").graph for name in shipped() if name != "chat"]


async def table() -> str:
    """The table as it is measured."""
    found = await compare(
        QUESTION, graphs(), model=OfflineModel(), tools=tools_from_ref("arithmetic"), approve="dangerous"
    )
    return _HEAD + "".join(map(_line, found.rows))


def _line(row: Compared) -> str:
    name, answer, usage = row.run.graph, row.run.output, row.usage
    numbers = (row.model_calls, row.rounds, usage.input_tokens, usage.output_tokens, row.tool_calls)
    cells = [f"[{name}]({name}.md)", "" if isinstance(answer, list) else str(answer), *map(str, numbers)]
    return f"| {' | '.join(cells)} |\n"


def kept() -> str:
    """The table of the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    """Write the table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{anyio.run(table)}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
