"""Runs leave a store as lines of JSON, and come into another one whole or not at all."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, node
from orchestrator.errors import InvalidExport, RunExists, RunUnknown, StoreError
from orchestrator.nodes import Ask, Confirm
from orchestrator.tools import tool
from tests.executor.test_deleting import family, ids
from tests.support.programs import CODE, Piped
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class State(BaseModel):
    word: str = ""
    reply: str = ""


@node
def double(state: State) -> Update:
    return {"word": state.word * 2}


def plain(name: str = "plain") -> Graph:
    return Graph(name=name, state=State, nodes={"double": double, "ask": Ask(prompt="Go on?", answer="reply")},
                 edges="START -> double -> ask -> END", input="word", output="reply")  # fmt: skip


@pytest.fixture(params=["memory://", "sqlite"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "memory://":
        return "memory://", "memory://"
    return f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"


async def lines_of(executor: Executor, *runs: str, **more: Any) -> list[str]:
    return [line async for line in executor.export(runs, **more)]


async def test_a_paused_run_goes_on_in_the_store_that_it_was_imported_into(urls: tuple[str, str]) -> None:
    graph = plain()
    async with Executor(urls[0], graphs=[graph]) as executor:
        run = await executor.start(graph, "ab", run_id="r", labels={"user": "u1"})
        lines = await lines_of(executor, "r")
        info = await executor.store.info("r")
    async with Executor(urls[1], graphs=[graph]) as executor:
        assert (await executor.import_(lines)).runs == ("r",)
        other = await executor.store.info("r")
        assert (other.status, other.labels, other.created, other.head) == (
            info.status,
            info.labels,
            info.created,
            info.head,
        )
        found = await executor.load("r")
        assert found.values == run.values
        assert [q.id for q in found.waiting] == [q.id for q in run.waiting]
        done = await executor.answer("r", found.waiting[0].id, "yes")
    assert (done.status, done.output) == ("completed", "yes")


async def test_runs_that_graph_tools_started_go_with_their_caller(urls: tuple[str, str]) -> None:
    outer, tools = family()
    async with Executor(urls[0], graphs=[outer], tools=tools) as executor:
        run = await executor.start(outer, "x", run_id="r")
        await executor.start(outer, "x", run_id="other")
        lines = await lines_of(executor, "r")
        alone = await lines_of(executor, "r", children=False)
    assert sum('"type":"run"' in line[:15] for line in alone) == 1
    async with Executor(urls[1]) as executor:
        imported = await executor.import_(lines)
        assert imported.runs[0] == "r"
        assert len(imported.runs) == 5
        assert set(imported.runs) == await ids(executor)
        assert (await executor.load("r")).output == run.output
        assert len(await executor.delete("r")) == 5


async def test_importing_again_skips_what_is_there_and_another_run_of_the_id_is_refused(urls: tuple[str, str]) -> None:
    graph = plain()
    async with Executor(urls[0], graphs=[graph]) as executor:
        await executor.start(graph, "ab", run_id="r")
        lines = await lines_of(executor, "r")
    async with Executor(urls[1], graphs=[graph]) as executor:
        await executor.import_(lines)
        run = await executor.load("r")
        await executor.answer("r", run.waiting[0].id, "yes")
        again = await executor.import_(lines)
        assert (again.runs, again.skipped) == ((), ("r",))  # it has gone on, and stays as it is
        assert (await executor.load("r")).status == "completed"
        await executor.delete("r")
        await executor.start(graph, "other", run_id="r")
        with pytest.raises(RunExists, match="nothing was imported"):
            await executor.import_(lines)


def sealed(lines: list[str]) -> list[str]:
    """Lines with the digest that fits them, as a forger would write it."""
    body = lines[:-1]
    end = {**json.loads(lines[-1]), "sha256": sha256("".join(line + "\n" for line in body).encode()).hexdigest()}
    return [*body, json.dumps(end)]


def changed(lines: list[str], number: int, **fields: object) -> list[str]:
    return sealed([*lines[:number], json.dumps({**json.loads(lines[number]), **fields}), *lines[number + 1 :]])


SPENT = {
    "type": "spent", "seq": 2, "ts": 1.0, "activation": "a", "path": "", "node": "n", "key": "k", "run": "x",
    "usage": {"calls": 1, "cost": -0.5},
}  # fmt: skip
FORKED = {"type": "forked", "seq": 2, "ts": 1.0, "run_id": "r", "parent": "x", "at": 1}
FORGERIES: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "empty": (lambda lines: [], "cut off"),
    "no export": (lambda lines: ["hello"], "not JSON"),
    "another file": (lambda lines: ['{"a": 1}'], "not an export of runs"),
    "cut off": (lambda lines: lines[:-1], "cut off"),
    "cut in a run": (lambda lines: lines[:4], "cut off"),
    "a line less": (lambda lines: [*lines[:-3], *lines[-2:]], "line"),
    "a changed record": (lambda lines: [*lines[:3], lines[3].replace("ab", "cd"), *lines[4:]], "another digest"),
    "more behind the end": (lambda lines: [*lines, "{}"], "after the end"),
    "a newer version": (lambda lines: changed(lines, 0, version=99), "its version is 99"),
    "a graph of another digest": (lambda lines: changed(lines, 1, digest="0" * 16), "digest"),
    "graph data of another kind": (lambda lines: changed(lines, 1, data=[1]), "digest"),
    "no graph": (lambda lines: sealed([lines[0], *lines[2:]]), "is not in the export"),
    "another run's records": (lambda lines: changed(lines, 2, run_id="other"), "run 'r'"),
    "a path as an id": (lambda lines: changed(changed(lines, 2, run_id="../x"), 3, run_id="../x"), "run id"),
    "too few records": (lambda lines: changed(lines, 2, records=1), "line"),
    "no records": (lambda lines: changed(lines, 2, records=0), "number of its"),
    "a record of no known type": (
        lambda lines: changed(lines, 4, type="boom"),
        "^line 5 .* this version has no record of type 'boom'",
    ),
    "a record of no type": (lambda lines: changed(lines, 4, type=None), "^line 5 .* it has no `type`"),
    "a list in place of a record": (
        lambda lines: sealed([*lines[:4], "[]", *lines[5:]]),
        "^line 5 .* it is not a JSON object",
    ),
    "a field of another type": (
        lambda lines: changed(lines, 4, node=7),
        r"^line 5 .* record 2 \(step_done\): field 'node': .* it is 7$",
    ),
    "a field too many": (
        lambda lines: changed(lines, 4, more=7),
        r"record 2 \(step_done\): this version has no field 'more'$",
    ),
    "a field too few": (lambda lines: changed(lines, 3, graph=None), r"record 1 \(run_started\): field 'graph': "),
    "rules of a later version": (
        lambda lines: changed(lines, 3, rules=99),
        r"record 1 \(run_started\): field 'rules': this version knows only rules 2 \(update .*\), and it is 99$",
    ),
    "a later version of a record": (lambda lines: changed(lines, 4, v=99), "record version 99 is newer"),
    "a gap": (lambda lines: changed(lines, 4, seq=7), "belongs"),
    "a moment out of time": (lambda lines: changed(lines, 3, ts=1e300), r"record 1 \(run_started\): field 'ts'"),
    "a moment before all clocks": (
        lambda lines: changed(lines, 4, ts=-1),
        r"^line 5 .* record 2 \(step_done\): field 'ts': Unix seconds are expected, .* it is -1$",
    ),
    "a moment as text": (lambda lines: changed(lines, 4, ts="7"), r"^line 5 .* field 'ts': .* it is '7'$"),
    "a moment as a word": (lambda lines: changed(lines, 3, ts=True), r"^line 4 .* field 'ts': .* it is True$"),
    "a step that ended before all clocks": (
        lambda lines: changed(lines, 4, ended=-0.5),
        "field 'ended': .* it is -0.5$",
    ),
    "negative usage": (
        lambda lines: sealed([*lines[:4], json.dumps(SPENT), *lines[5:]]),
        r"^line 5 .* record 2 \(spent\): field 'usage.cost': a number of 0 or more is expected, and it is -0.5$",
    ),
    "usage that no store takes": (
        lambda lines: sealed([*lines[:4], json.dumps({**SPENT, "usage": {"calls": 10**400}}), *lines[5:]]),
        r"^line 5 .* record 2 \(spent\): field 'usage.calls': a number of at most 19 digits is expected$",
    ),
    "usage whose sum no store takes": (
        lambda lines: sealed([*lines[:4], json.dumps({**SPENT, "usage": {"calls": 10**18}}), *lines[5:]]),
        r"^line 5 .* record 2 \(spent\): field 'usage.calls': a number below 1,000,000,000,000 is expected$",
    ),
    "a fork at a record that no run has": (
        lambda lines: sealed([*lines[:4], json.dumps({**FORKED, "at": 10**30}), *lines[5:]]),
        r"^line 5 .* record 2 \(forked\): field 'at': a number of at most 19 digits is expected$",
    ),
    "deep": (lambda lines: [lines[0], '{"type":"graph","digest":"x","data":' + "[" * 100_000], "not JSON"),
    "an update of no step": (lambda lines: changed(lines, 4, update="x"), r"record 2 \(step_done\): field 'update'"),
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_files_that_were_cut_or_forged_are_refused_and_nothing_is_written(name: str) -> None:
    forge, words = FORGERIES[name]
    graph = plain()
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, "ab", run_id="r")
        lines = await lines_of(executor, "r")
    async with Executor(graphs=[graph]) as executor:
        with pytest.raises((InvalidExport, StoreError), match=words) as refused:
            await executor.import_(forge(lines))
        assert "tagged-union" not in str(refused.value)
        assert not await ids(executor)


calls: list[str] = []


@tool(risk="dangerous", effect="irreversible")
def wipe(what: str) -> str:
    """Wipe something.

    Args:
        what: what.
    """
    calls.append(what)
    return "wiped"


async def test_an_imported_approval_does_not_count() -> None:
    @node
    async def work(ctx: Context[Any]) -> Update:
        return {"reply": str((await ctx.tool("wipe", what="all")).output)}

    graph = Graph(name="risky", state=State, nodes={"ok": Confirm(prompt="Wipe?"), "work": work},
                  edges="START -> ok\nok -> work : approved\nok -> END : denied\nwork -> END")  # fmt: skip
    calls.clear()
    async with Executor(graphs=[graph], tools=[wipe]) as executor:
        run = await executor.start(graph, {}, run_id="r")
        await executor.answer("r", run.waiting[0].id, Approve(), resume=False)
        lines = await lines_of(executor, "r")
    async with Executor(graphs=[graph], tools=[wipe]) as executor:
        await executor.import_(lines)
        run = await executor.resume("r")
        assert (run.status, calls) == ("paused", [])
        assert [q.kind for q in run.waiting] == ["approval"]
        done = await executor.answer("r", run.waiting[0].id, Approve())
    assert (done.status, calls) == ("completed", ["all"])


async def test_a_redacted_export_blanks_secrets_and_is_not_imported() -> None:
    graph = plain()
    secret = "sk-" + "a1B2" * 10
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, f"my key is {secret}", run_id="r")
        lines = await lines_of(executor, "r", redact=True)
        assert secret not in "".join(lines)
        assert "[redacted]" in "".join(lines)
        assert secret in "".join(await lines_of(executor, "r"))
    async with Executor(graphs=[graph]) as executor:
        with pytest.raises(InvalidExport, match="redacted"):
            await executor.import_(lines)


async def test_an_unknown_run_is_reported_before_the_first_line() -> None:
    async with Executor() as executor:
        with pytest.raises(RunUnknown):
            await anext(aiter(executor.export(["nope"])))
        with pytest.raises(StoreError, match="cannot be read"):
            await executor.import_("/nowhere/at/all.jsonl")


# -- pruning -----------------------------------------------------------------------------------------------------


async def ended(executor: Executor, graph: Graph, count: int) -> list[str]:
    names = []
    for number in range(count):
        run = await executor.start(graph, "x", run_id=f"r{number}")
        await executor.answer(run.run_id, run.waiting[0].id, "yes")
        names.append(run.run_id)
    return names


async def test_pruning_deletes_ended_runs_by_age_and_number_and_no_others(urls: tuple[str, str]) -> None:
    graph = plain()
    async with Executor(urls[0], graphs=[graph]) as executor:
        await ended(executor, graph, 5)
        await executor.start(graph, "x", run_id="paused")
        assert not (await executor.prune(older_than=timedelta(hours=1))).runs
        dry = await executor.prune(keep=2, dry_run=True)
        assert dry.runs == ("r2", "r1", "r0")
        assert len(await ids(executor)) == 6
        assert (await executor.prune(keep=2)).runs == ("r2", "r1", "r0")
        assert (await executor.prune(older_than=datetime.now(UTC), status="failed")).runs == ()
        assert set((await executor.prune(older_than=timedelta(0))).runs) == {"r3", "r4"}
        assert await ids(executor) == {"paused"}


async def test_pruning_takes_children_with_their_caller_only() -> None:
    outer, tools = family()
    async with Executor(graphs=[outer], tools=tools) as executor:
        await executor.start(outer, "x", run_id="r")
        everything = await ids(executor)
        found = await executor.prune(keep=0)
        assert found.runs == ("r",)
        assert set(found.children) == everything - {"r"}
        assert not await ids(executor)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "older_than= or keep="), ({"keep": -1}, "keep=-1"), ({"keep": 1, "status": "paused"}, "paused"),
        ({"keep": 1, "status": "complted"}, "complted"), ({"older_than": datetime(2026, 1, 1)}, "time zone"),
        ({"older_than": timedelta(days=-1)}, "0 or more"),
    ],
)  # fmt: skip
async def test_a_pruning_that_says_too_little_or_too_much_is_refused(given: dict[str, Any], words: str) -> None:
    async with Executor() as executor:
        with pytest.raises(ValueError, match=words):
            await executor.prune(**given)


# -- killed in the middle ----------------------------------------------------------------------------------------

PROGRAM = """
import sys, anyio
from orchestrator import Executor
async def main():
    async with Executor(sys.argv[1]) as executor:
        print("begin", flush=True)
        await (executor.import_(sys.argv[3]) if sys.argv[2] == "import" else executor.prune(keep=0))
anyio.run(main)
"""


def _kill_in(command: str, url: str, path: Path, after: float) -> None:
    with closing(Piped([PROGRAM, url, command, path], module=CODE)) as program:
        program.line()
        time.sleep(after)
        program.signal(signal.SIGKILL)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_killed_import_or_pruning_leaves_whole_runs_and_can_be_done_again(tmp_path: Path) -> None:
    graph = plain()
    count = sized(20, 200)
    async with Executor(graphs=[graph]) as executor:
        names = await ended(executor, graph, count)
        lines = await lines_of(executor, *names)
    path, url = tmp_path / "runs.jsonl", f"sqlite:///{tmp_path}/runs.db"
    path.write_text("\n".join(lines) + "\n")
    for command in ("import", "prune"):
        for after in sized((0.05,), (0.02, 0.05, 0.1)):
            await anyio.to_thread.run_sync(_kill_in, command, url, path, after)
            async with Executor(url) as executor:
                for name in await ids(executor):
                    assert (await executor.load(name)).output == "yes"
        async with Executor(url) as executor:
            if command == "import":
                found = await executor.import_(path)
                assert set(found.runs) | set(found.skipped) == set(names) == await ids(executor)
            else:
                await executor.prune(keep=0)
                assert not await ids(executor)
