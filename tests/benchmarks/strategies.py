"""ReWOO against ReAct: prompt tokens and rounds, by the steps of a task. `python -m tests.benchmarks.strategies`.

The tokens are those of the requests that the strategies really send, tools included, counted by one rule: a token for
every four bytes, and four for every message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import linear_regression

import anyio

from orchestrator import Graph, OfflineModel, Tool, ToolCall, tool
from orchestrator.comparison import compare
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.models.prices import approximated
from orchestrator.nodes.plan import SYSTEM as PLANNING
from orchestrator.strategies.react import SYSTEM, react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref


class Counting(OfflineModel):
    """The offline model, with tokens counted as above."""

    async def respond(self, request: ModelRequest) -> Reply:
        return counted(request, await super().respond(request))


def counted(request: ModelRequest, reply: Reply) -> Reply:
    """The reply with what its request came to."""
    return reply.model_copy(update={"usage": approximated(request, reply)})


# -- tasks -----------------------------------------------------------------------------------------------------------

Step = tuple[str, str, str, str]
"""Tool, what it is called with, the same in a plan, and what it gives."""


def sums(steps: int) -> str:
    """`((1 + 2) * 3) + 4 ...`: each step needs the one before, and gives a number."""
    term = "1"
    for number in range(steps):
        term = f"({term} {'+*'[number % 2]} {number + 2})"
    return f"What is {term}?"


def sums_worked(steps: int) -> list[Step]:
    """The same, worked out."""
    found, lines = 1, list[Step]()
    for number in range(steps):
        name, other, before = ("add", "multiply")[number % 2], number + 2, found
        found = before + other if name == "add" else before * other
        lines.append((name, f"{before}, {other}", f"{f'#E{number}' if number else before}, {other}", str(found)))
    return lines


SENTENCE = "The keeper of this place writes down who came by, what they carried, and where they went from here. "


@tool(risk="read", effect="read")
def look_up(page: str) -> str:
    """Read a page.

    Args:
        page: its name, or the text of the page that leads to it.
    """
    number = int(re.findall(r"[0-9]+", page)[-1])
    return f"{SENTENCE * 4}From here follow page {number + 1}."


def trail(steps: int) -> str:
    """Pages of about eighty words, each of which names the next one."""
    return f"Begin at page 0 and follow the trail over {steps} pages. Where does the last one lead?"


def trail_worked(steps: int) -> list[Step]:
    """The same, worked out."""
    return [
        ("look_up", f"page {n}", f"#E{n}" if n else "page 0", f"{SENTENCE * 4}From here follow page {n + 1}.")
        for n in range(steps)
    ]


def follow(request: ModelRequest) -> Reply:
    """What a model says on a trail, in the same few words at each step."""
    asked = next(message.content for message in request.messages if message.role == "user")
    steps = int(re.findall(r"over ([0-9]+) pages", asked)[-1])
    if request.task == "plan":
        return counted(request, Reply(text=planned(trail_worked(steps))))
    done = sum(message.role == "tool" for message in request.messages)
    if request.task == "solve" or done == steps:
        return counted(request, Reply(text=f"page {steps}"))
    given = {"page": f"page {done}"}
    call = ToolCall(id=f"call_{done}", name="look_up", arguments=given, raw=json.dumps(given))
    return counted(request, Reply(text=THOUGHT, tool_calls=(call,), finish="tool_calls"))


@dataclass(frozen=True)
class Task:
    """A kind of task that is made with any number of steps."""

    name: str
    question: Callable[[int], str]
    worked: Callable[[int], list[Step]]
    model: Callable[[], OfflineModel | ScriptedModel]
    tools: Sequence[Tool]


TASKS = (
    Task("sums", sums, sums_worked, Counting, tuple(tools_from_ref("arithmetic"))),
    Task("pages", trail, trail_worked, lambda: ScriptedModel(follow), (look_up,)),
)

# -- the strategies, with examples in their system messages: the same tasks, in the form of each -----------------------

THOUGHT = "Now the next step of it."
EXAMPLES = (2, 3, 4)
"""Steps of the examples."""


def planned(steps: Sequence[Step]) -> str:
    """A blueprint: what is called, and nothing of what comes of it."""
    return "\n".join(f"Plan: {THOUGHT}\n#E{n} = {name}[{given}]" for n, (name, _, given, _) in enumerate(steps, 1))


def stepwise(steps: Sequence[Step]) -> str:
    """Thoughts, calls, and what comes of each."""
    return "\n".join(
        f"Thought: {THOUGHT}\nAction: {name}[{given}]\nObservation: {out}" for name, given, _, out in steps
    )


def strategies(task: Task, steps: int, *, examples: bool) -> tuple[Graph, Graph]:
    """ReAct and ReWOO, with room for so many steps."""
    thinking, planning = react(max_steps=steps + 1), rewoo()
    if not examples:
        return thinking, planning
    told = [
        "\n\n".join(f"Example: {task.question(length)}\n{write(task.worked(length))}" for length in EXAMPLES)
        for write in (stepwise, planned)
    ]
    think = thinking.nodes["think"].with_(system=f"{SYSTEM}\n\n{told[0]}")
    plan = planning.nodes["plan"].with_(constrain="never", system=f"{PLANNING['blueprint', 'never']}\n\n{told[1]}")
    return thinking.replace(think=think), planning.replace(plan=plan)


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What one strategy took for one task."""

    tokens: int
    rounds: int
    answer: str


def measure(task: Task, steps: int, *, examples: bool) -> tuple[Cost, Cost]:
    """ReAct and ReWOO on a task of so many steps."""
    graphs = strategies(task, steps, examples=examples)

    async def run() -> list[Cost]:
        found = await compare(task.question(steps), graphs, model=task.model(), tools=task.tools)
        wrong = [row for row in found.rows if row.run.status != "completed"]
        assert not wrong, wrong
        return [Cost(row.usage.input_tokens, row.rounds, str(row.answer)) for row in found.rows]

    thinking, planning = anyio.run(run)
    assert thinking.answer == planning.answer, (thinking, planning)
    return thinking, planning


def bend(tokens: Sequence[int]) -> float:
    """How much more each further step costs than the one before: 0 where the growth is linear.

    Mean of the second differences: of `a + b n + c n²` it is `2 c`, whatever the rest is.
    """
    first = [after - before for before, after in pairwise(tokens)]
    return sum(after - before for before, after in pairwise(first)) / (len(first) - 1)


def fitted(tokens: Sequence[int]) -> str:
    """The growth as a formula in the number of steps n, which begins with 1."""
    square = round(bend(tokens) / 2, 1) or 0.0
    line = linear_regression(range(1, len(tokens) + 1), [one - square * n * n for n, one in enumerate(tokens, 1)])
    return f"{line.intercept:.0f} + {line.slope:.0f} n" + (f" + {square:.1f} n²" if square else "")


MOST = 8
LONG = (4, 8, 16, 32)


def report(task: Task) -> list[str]:
    """The table of one kind of task as Markdown, and the growth that it shows."""
    costs = {examples: [measure(task, n, examples=examples) for n in range(1, MOST + 1)] for examples in (False, True)}
    columns = f"{task.name}: steps|rounds: react|rewoo|tokens: react|rewoo|ratio|with examples: react|rewoo|ratio"
    lines = [f"| {columns.replace('|', ' | ')} |", "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for n, ((one, two), (more, much)) in enumerate(zip(costs[False], costs[True], strict=True), 1):
        cells = (n, one.rounds, two.rounds, one.tokens, two.tokens, f"{one.tokens / two.tokens:.1f}")
        cells += (more.tokens, much.tokens, f"{more.tokens / much.tokens:.1f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    doublings = ", ".join(f"{one} to {two}" for one, two in pairwise(LONG))
    lines += [
        "",
        f"| {task.name} | prompt tokens of n steps | times as many, from {doublings} steps |",
        "|---|---|---|",
    ]
    for examples, pairs in costs.items():
        long = [measure(task, n, examples=examples) for n in LONG]
        for which, name in enumerate(("react", "rewoo")):
            formula = fitted([pair[which].tokens for pair in pairs])
            times = ", ".join(f"{two[which].tokens / one[which].tokens:.2f}" for one, two in pairwise(long))
            lines.append(f"| {name}{', with examples' if examples else ''} | {formula} | {times} |")
    return lines


def main() -> None:
    """Measure and print."""
    print("\n\n".join("\n".join(report(task)) for task in TASKS))


if __name__ == "__main__":
    main()
