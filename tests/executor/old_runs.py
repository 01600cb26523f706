"""The graphs of `tests/data/rules1.sqlite`: runs begun when journals did not yet name the rules that they follow.

The store was written by the version before `RunStarted.rules`. In it the order of updates could depend on the run's
id, `replace()` beside another branch's update was no conflict, and joins that one step completed fired in the opposite
order. `rules1.json` holds what that version made of the runs: the state after every record, and for the run that waits
what it came to when it was answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator import Context, Graph, Limits, Outcome, Update, add, append, node, replace

DATA = Path(__file__).parents[1] / "data"
STORE = DATA / "rules1.sqlite"
EXPECTED = DATA / "rules1.json"


class Log(BaseModel):
    log: Annotated[list[str], append] = []
    n: Annotated[int, add] = 0
    xs: list[int] = []


def says(word: str, join: Any = None, value: object = None) -> Any:
    """A node that logs one word, or gives the log a value."""

    @node(join=join, version="1")
    def say(state: Log) -> Update:
        return {"log": word if value is None else value}

    return say


@node(version="1")
def begin(state: Log) -> Update:
    return {"n": 1}


@node(version="1")
def work(state: Log) -> Update:
    return {"n": 0}


@node(version="1")
def note(state: Log) -> Update:
    return {"log": f"round {state.n}"}


@node(join="all", outcomes=("again", "ok"), version="1")
def check(state: Log) -> Outcome:
    return Outcome("again" if state.n < 4 else "ok")


@node(version="1")
async def ask(state: Log, ctx: Context) -> Update:
    answer = await ctx.ask("input", prompt="Go on?")
    return {"log": replace([f"asked: {answer.value}"])}


ROUNDS = """
    START -> begin -> work, note
    work -> check
    note -> END
    check -> begin : again
"""


def rounds() -> Graph:
    """Rounds of a loop, each of which leaves a branch that ended: their notes had no order of their own."""
    nodes = {"begin": begin, "work": work, "note": note, "check": check}
    return Graph(name="rounds", state=Log, nodes=nodes, edges=f"{ROUNDS}\ncheck -> END : ok", output="log")


def waiting() -> Graph:
    """The same, then a question; its answer replaces the log beside the notes."""
    nodes = {"begin": begin, "work": work, "note": note, "check": check, "ask": ask, "last": says("last")}
    edges = f"{ROUNDS}\ncheck -> ask : ok\nask -> last -> END"
    return Graph(name="waiting", state=Log, nodes=nodes, edges=edges, output="log")


def replaced() -> Graph:
    """One branch appends, the other one replaces."""
    nodes = {"begin": begin, "one": says("one"), "two": says("two", value=replace(["TWO"])), "end": says("end", "all")}
    return Graph(
        name="replaced", state=Log, nodes=nodes, edges="START -> begin -> one, two -> end -> END", output="log"
    )


def together() -> Graph:
    """Two joins that one step completes, and one step left for them."""
    nodes = {"begin": begin, "b": says("b"), "c": says("c"), "one": says("one", "all"), "two": says("two", "all")}
    edges = "START -> begin -> b, c\nb -> one, two\nc -> one, two\none -> END\ntwo -> END"
    return Graph(name="together", state=Log, nodes=nodes, edges=edges, output="log", limits=Limits(steps=4))


def graphs() -> Iterable[Graph]:
    return rounds(), waiting(), replaced(), together()
