"""The tree of a run: what it says at each moment, however wide the terminal is and whatever a run says of itself."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable
from typing import Annotated

import anyio
import pytest
from pydantic import BaseModel
from rich.cells import cell_len

from orchestrator import Approve, Context, Executor, Graph, Limits, Retry, Update, append, node, tool
from orchestrator.executor import Event
from orchestrator.graph.limits import Usage
from orchestrator.kernel.plan import Plan
from orchestrator.models import Message, ModelEvent, Reply
from orchestrator.nodes import Confirm, Subgraph
from orchestrator.render.terminal import excerpts, tree
from orchestrator.render.terminal.texts import can_draw
from orchestrator.render.terminal.tree import Line, Screen
from orchestrator.views.events import record_of
from orchestrator.views.reader import Reader
from orchestrator.views.step_tree import StepTree
from tests.support.trial import NASTY, SECRET

pytestmark = pytest.mark.anyio


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Trip(BaseModel):
    topic: str = ""
    cities: list[str] = []
    notes: Annotated[list[str], append] = []
    report: str = ""


class Speaker:
    """A model that says some words, piece by piece."""

    name, streams = "speaker", True

    async def complete(self, messages: object, *_: object, **__: object) -> Reply:
        raise AssertionError("somebody watches")

    async def stream(self, messages: list[Message], *_: object, **__: object) -> object:
        for word in ("Nice ", NASTY, " and ", SECRET[:9], SECRET[9:], " it ", "is"):
            yield ModelEvent(text=word)
        yield ModelEvent(reply=Reply(text="Nice", usage=Usage(input_tokens=12, output_tokens=3)))


@node
def plan(state: Trip) -> Update:
    return {"cities": ["Rome", "Oslo", NASTY]}


@node(retry=Retry(wait=0.001))
async def search(state: Trip, item: str, ctx: Context[object]) -> Update:
    if item == "Oslo" and ctx.attempt == 1:
        raise TimeoutError(f"no answer {NASTY} {SECRET}")
    return {"notes": f"{item} is nice"}


@node(join="all")
async def write(state: Trip, ctx: Context[object]) -> Update:
    return {"report": (await ctx.model.complete("write")).text}


@node
async def fails(state: Trip) -> None:
    raise ValueError(f"no {NASTY} {SECRET}")


travel = Graph(
    name="travel", state=Trip, input="topic", nodes={"plan": plan, "search": search, "write": write, "ok": Confirm()},
    edges="START -> plan\n plan -> search : each cities\n search -> write -> ok\n ok -> END", output="report",
    limits=Limits(steps=20, tokens=1000),
)  # fmt: skip


async def seen(graph: Graph, **options: object) -> list[Event]:
    """All events of a run of the graph."""
    async with Executor(model=Speaker()) as executor, executor.stream(graph, "x", **options) as stream:  # type: ignore[arg-type]
        return [event async for event in stream]


def read_by(graph: Graph) -> tuple[StepTree, Reader]:
    model = StepTree()
    return model, Reader(Plan.of(graph), model)


def of(graph: Graph, events: Iterable[Event]) -> StepTree:
    model, reader = read_by(graph)
    for event in events:
        reader.take(event)
    return model


def now_in(model: StepTree, width: int = 100, height: int = 40) -> list[str]:
    return [line.text for line in tree.going_on(model, model.live_branches(), 1e12, width, height)]


def after_all(model: StepTree) -> list[str]:
    """Everything that a run leaves behind, without how long it took."""
    standing = model.live_branches()
    lines = [line.text for step in model.top.steps for line in tree.left_behind(model, step, standing, 0.0)]
    return [re.sub(r"\d+\.\d\d s", "0.00 s", line) for line in lines]


async def test_a_run_is_a_tree_of_steps_branches_and_calls() -> None:
    model = of(travel, await seen(travel))
    assert after_all(model) == [
        "✓ plan  0.00 s  3/3  cities: Rome, Oslo, '\\u202ered'",
        "│ ✓ plan.0 Rome · search  0.00 s  notes: 'Rome is nice'",
        "│ ✓ plan.1 Oslo · search  attempt 2  0.00 s  notes: 'Oslo is nice'",
        "│ ✓ plan.2 \\u202ered · search  0.00 s  notes: '\\u202ered is nice'",
        "✓ write  0.00 s  report: Nice",
        "│ ✓ model speaker  12 → 3 tokens  0.00 s  = Nice",
        "? ok  waits: Go on?",
    ]
    (last,) = [line for line in now_in(model) if "paused" in line]
    assert "5 steps · 1 call · 15 tokens   left: 14 steps · 985 tokens" in last


async def test_what_goes_on_is_told_while_it_does() -> None:
    events = await seen(travel)
    told = list[str]()
    model, reader = read_by(travel)
    for event in events:
        reader.take(event)
        told.append("\n".join(now_in(model)))
        if model.top.steps and "✓ plan" in told[-1]:
            landed_all = "3/3" in told[-1] and "write" in told[-1]
            assert model.is_over(model.top.steps[0], model.live_branches()) == landed_all
    landed = [shown for shown in told if "plan" in shown and "/3" in shown]
    assert "0/3" in landed[0]
    assert "3/3" in landed[-1]
    assert any("↻ plan.1 Oslo" in shown or "attempt 2" in shown for shown in landed)
    words = [shown for shown in told if "“" in shown]
    assert "“Nice ”" in words[0] or "“Nice”" in words[0]
    assert any("[redacted]" in shown for shown in words)
    assert all("sk-" not in shown for shown in told)


async def test_records_alone_tell_the_same_as_events_told_live() -> None:
    """Who watches a run that another process drives sees the journal only."""
    events = await seen(travel)
    here, elsewhere = of(travel, events), of(travel, [event for event in events if event.seq is not None])
    assert after_all(here) == after_all(elsewhere)
    assert [step.node for step in here.running()] == [step.node for step in elsewhere.running()] == ["ok"]


@pytest.mark.parametrize(("width", "height"), [(12, 4), (30, 5), (80, 24), (200, 60)])
async def test_every_line_fits_and_commands_nothing(width: int, height: int) -> None:
    nested = Graph(
        name="nested", state=Trip, input="topic",
        nodes={"in": Subgraph(travel.replace(ok=fails), inputs={"topic": "topic"}, outputs={"report": "report"})},
        edges="START -> in -> END", output="report",
    )  # fmt: skip
    events = await seen(nested)
    for count in range(1, len(events) + 1):
        model = of(nested, events[:count])
        lines = tree.going_on(model, model.live_branches(), 1e9, width, height)
        assert len(lines) <= height
        for line in lines:
            fitted = line.fitted(width)
            assert cell_len(fitted.text) <= width
            assert fitted.text.isprintable(), fitted.text
            assert "sk-abc" not in fitted.text
    assert any("✗ in" in line for line in after_all(model))
    assert any("✗ ok" in line and "failed: ValueError" in line for line in after_all(model))


async def test_who_loses_a_race_is_dropped() -> None:
    begun: list[str] = []

    @node
    async def quick(state: Trip) -> None:
        while len(begun) < 2:  # noqa: ASYNC110 - what it waits for is on either event loop
            await anyio.sleep(0.001)

    @node
    async def slow(state: Trip, ctx: Context[object]) -> None:
        begun.append(ctx.path)
        await anyio.sleep_forever()

    inner = Graph(name="inner", state=Trip, nodes={"slow": slow}, edges="START -> slow -> END", output="topic")
    race = Graph(
        name="race", state=Trip, input="topic",
        nodes={"quick": quick, "slow": slow, "sub": Subgraph(inner), "first": quick.with_(join=1)},
        edges="START -> quick, slow, sub -> first -> END", output="topic",
    )  # fmt: skip
    lines = after_all(of(race, await seen(race)))
    assert [line.split("  ")[0] for line in lines] == [
        "✓ START", "│ ✓ START.0 · quick", "│ – START.1 · slow", "│ – START.2 · sub", "│ │ – slow", "✓ first",
    ]  # fmt: skip
    assert all("not needed any more" in lines[number] for number in (2, 3, 4))


async def test_a_loop_through_a_fork_gives_each_round_its_own_branches() -> None:
    @node(outcomes=("again", "enough"))
    def judge(state: Trip) -> str: ...  # type: ignore[empty-body]

    @node(join="all")
    def meet(state: Trip) -> Update:
        return {"notes": "met"}

    @node
    def one(state: Trip) -> None: ...

    @node(outcomes=("again", "enough"))
    def ask(state: Trip) -> object:
        from orchestrator import Outcome

        return Outcome("enough" if len(state.notes) > 2 else "again")

    rounds = Graph(
        name="rounds", state=Trip, input="topic",
        nodes={"fork": one, "left": one, "right": one, "meet": meet, "ask": ask},
        edges="START -> fork -> left, right -> meet -> ask\n ask -> fork : again\n ask -> END : enough", output="notes",
    )  # fmt: skip
    lines = [line.split("  ")[0] for line in after_all(of(rounds, await seen(rounds)))]
    once = ["✓ fork", "│ ✓ fork.0 · left", "│ ✓ fork.1 · right", "✓ meet"]
    assert lines == [*once, "✓ ask → again", *once, "✓ ask → again", *once, "✓ ask → enough"]


async def test_a_map_of_many_is_told_in_few_lines() -> None:
    @node
    def many(state: Trip) -> Update:
        return {"cities": [f"c{i}" for i in range(500)]}

    @node
    async def each(state: Trip, item: str) -> Update:
        if item == "c250":
            raise ValueError("lost")
        return {"notes": item}

    @node
    def lost(state: Trip) -> None: ...

    graph = Graph(
        name="many", state=Trip, input="topic",
        nodes={"many": many, "each": each, "lost": lost, "meet": plan.with_(join="all")},
        edges="""
            START -> many
            many -> each : each cities
            each -> meet
            each -> lost : error
            lost -> meet -> END
        """,
        output="notes", limits=Limits(steps=2000, concurrency=7),
    )  # fmt: skip
    events = await seen(graph)
    middle = of(graph, itertools.takewhile(lambda event: event.seq is None or event.seq < 300, events))
    lines = now_in(middle, height=24)
    assert len(lines) <= 24
    assert "/500" in lines[0]
    assert any("not begun" in line for line in lines)
    model = of(graph, events)
    lines = after_all(model)
    assert len(lines) < 60
    assert "500/500" in lines[0]


async def test_events_give_back_their_records() -> None:
    async with Executor(model=Speaker()) as executor:
        run = await executor.start(travel, "x", labels={"a": "b"})
        fork = await executor.fork(run.run_id, update={"topic": "y"}) if hasattr(executor, "fork") else run
        for run_id in {run.run_id, fork.run_id}:
            records = await executor.store.read(run_id)
            assert [record_of(event) async for event in executor.events(run_id)] == list(records)


async def test_it_is_told_who_answered_and_how_far_a_call_is() -> None:
    @tool(risk="write", effect="idempotent")
    async def fetch(pages: int, ctx: Context[object]) -> str:
        """Fetch pages."""
        await ctx.progress(f"page 1\n{NASTY}page 2", done=2, total=pages)
        return "all"

    @node
    async def calls(state: Trip, ctx: Context[object]) -> Update:
        return {"report": str((await ctx.tool("fetch", pages=8)).output)}

    graph = Graph(
        name="fetching", state=Trip, input="topic", nodes={"ok": Confirm(), "calls": calls},
        edges="START -> ok -> calls -> END", output="report",
    )  # fmt: skip
    async with Executor(tools=[fetch]) as executor:
        run = await executor.start(graph, "x")
        await executor.answer(run.run_id, run.waiting[0].id, Approve(), by=f"ann{NASTY}")
        model = of(graph, [event async for event in executor.events(run.run_id)])
        assert after_all(model)[0] == "✓ ok → approved by ann\\u202ered  0.00 s"
        alone = graph.replace(ok=plan)
        told = list[str]()
        model, reader = read_by(alone)
        async with executor.stream(alone, "x") as stream:
            async for event in stream:
                reader.take(event)
                told.append("\n".join(now_in(model)))
    assert any(re.search(r"fetch\(pages=8\).*  25% \\u202eredpage 2$", shown, re.M) for shown in told)


def test_words_that_are_not_whole_are_not_shown() -> None:
    assert excerpts.tail("the key is sk-abcdefghij", 40) == "the key is"
    assert excerpts.tail(f"the key is {SECRET} so", 40) == "the key is [redacted]"
    assert excerpts.tail("one two three four ", 10) == "…hree four"
    assert (
        excerpts.value({"password": "pa'ss", "text": f"\x1b[31m{SECRET}"})
        == '{"password": "[redacted]", "text": "[redacted]"}'
    )
    assert len(excerpts.value({"a": ["x" * 10_000] * 1000})) <= 160
    for most in (400, 640):  # cut within the secret, and then what stands before it becomes short
        said = " " * (most - 12) + SECRET
        assert "sk-" not in excerpts.value(said) + excerpts.value({"a": [said]}) + excerpts.text(said)


@pytest.mark.parametrize("width", [10, 11, 40, 79])
@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize("words", ["short", "long " * 50, "東京" * 60, "👩‍👩‍👧 " * 40, "a\u0301" * 90])
def test_a_line_is_cut_by_columns(words: str, tail: bool, width: int) -> None:
    line = Line((("“", "dim"), (words, ""), ("”", "dim")), tail=tail)
    for _ in range(6):
        assert cell_len(line.fitted(width).text) <= width
        if cell_len(line.text) <= width:
            assert line.fitted(width) == line
        narrow = line.said_in("ascii").fitted(width).text
        assert narrow.isascii()
        assert len(narrow) <= width
        line = line.inside()
    if tail and words == "long " * 50 and width > 39:
        assert line.fitted(width).text.endswith("long ”")


class Written(io.StringIO):
    """A terminal, as far as a program can ask."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


async def test_what_is_over_stays_and_what_goes_on_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    stream = Written()
    screen = Screen(Plan.of(travel), stream)
    for event in await seen(travel):
        screen.show(event)
    screen.hold()
    screen.hold()
    final = COLOUR.sub("", stream.getvalue()).rpartition("\x1b[2K")[2]
    assert final.splitlines()[-2:] == [line.text for line in tree.summary(screen._model, 0.0, 70)]
    assert final.count("✓ model speaker  12 → 3 tokens") == final.count("paused") == 1
    assert final.endswith("\n")


async def test_names_in_a_forged_journal_command_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as of outcomes that no graph of this library has."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    screen = Screen(Plan.of(travel), stream := Written())
    evil = "\x1b]52;c;eA==\x07\nApprove? "
    for event in await seen(travel):
        if event.type == "step_done":
            screen.show(event.model_copy(update={"data": {**event.data, "outcome": evil}}))
            break
        screen.show(event)
    screen.hold()
    assert "\\u001b]52;c;eA==\\u0007\\nApprove?" in stream.getvalue()
    assert "\x1b]" not in stream.getvalue()


@pytest.mark.parametrize(
    ("terminal", "env", "draws"),
    [(True, {"TERM": "xterm"}, True), (False, {"TERM": "xterm"}, False), (True, {"TERM": "dumb"}, False),
     (True, {"TERM": "xterm", "NO_COLOR": "1"}, False), (True, {"TERM": "xterm", "NO_COLOR": ""}, True)],
)  # fmt: skip
def test_where_it_can_be_drawn(
    terminal: bool, env: dict[str, str], draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    if "NO_COLOR" not in env:
        monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Written() if terminal else io.StringIO()
    assert can_draw(stream) == draws
