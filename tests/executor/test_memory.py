"""Memory across runs: every access of a run is an effect, and the items stay."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from orchestrator import Context, Executor, Graph, MemoryOptions, Update, node
from orchestrator.errors import InvalidValue, MemoryFull, SecretInState, StoreUnavailable
from orchestrator.executor.calls.memory import MemoryAccess
from orchestrator.memory import Access
from orchestrator.redaction import know
from orchestrator.stores.items import Area, Item
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import assert_crash_safe
from tests.support.executors import Log, chain, single
from tests.support.programs import run as run_program

pytestmark = pytest.mark.anyio

USER = ("users", "42")


class Accessed(MemoryStore):
    """A store that counts accesses to items."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self.gets = 0

    async def put_item(self, area: Area, item: Item, **more: Any) -> None:
        self.puts += 1
        await super().put_item(area, item, **more)

    async def item(self, area: Area, namespace: tuple[str, ...], key: str) -> Item | None:
        self.gets += 1
        return await super().item(area, namespace, key)


@node
async def visit(state: Log, ctx: Context) -> Update:
    """Count the visits of a user."""
    item = await ctx.memory.get(USER, "visits")
    visits = 1 if item is None else item.value + 1
    await ctx.memory.put(USER, "visits", visits)
    return {"log": f"visit {visits}"}


VISIT = chain(visit, name="visit")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_one_run_keeps_the_next_one_finds(kind: str, tmp_path: Path) -> None:
    store = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[VISIT]) as executor:
        runs = [await executor.start(VISIT, "?") for _ in range(3)]
        assert [run.output for run in runs] == [["visit 1"], ["visit 2"], ["visit 3"]]
        item = await executor.memory.get(USER, "visits")
        assert item is not None
        assert (item.value, item.namespace, item.key, item.score) == (3, USER, "visits", None)
        await executor.delete(runs[0].run_id)
        assert [one.value for one in await executor.memory.list()] == [3]
        assert (await executor.check()).ok


async def test_a_node_does_all_that_an_executor_does() -> None:
    class Profile(BaseModel):
        name: str
        likes: list[str]

    async def work(state: Log, ctx: Context) -> Update:
        memory = ctx.memory
        await memory.put(USER, "profile", Profile(name="Zoë", likes=["green tea", "nuts"]), expires=1e6)
        await memory.put(("users", "7"), "profile", {"name": "Ann", "likes": ["coffee"]})
        await memory.put(("teams",), "note", True, text="the team likes tea")
        item = await memory.get(USER, "profile")
        assert item is not None
        assert item.value_as(Profile) == Profile(name="Zoë", likes=["green tea", "nuts"])
        with pytest.raises(InvalidValue, match="does not fit"):
            item.value_as(int)
        assert item.expires is not None
        assert item.expires == pytest.approx(item.updated + 1e6)
        found = await memory.search((), "who likes TEA?")
        first = await memory.list(limit=1)
        rest = await memory.list(("users",), after=first[0])
        there, gone = await memory.delete(("teams",), "note"), await memory.delete(("teams",), "note")
        spaces = await memory.namespaces(("users",))
        lines = [
            " ".join("/".join(one.namespace) for one in found),
            " ".join([first[0].key, *("/".join(one.namespace) for one in rest)]),
            f"{there} {gone} {await memory.get(('teams',), 'note')} {spaces}",
        ]
        return {"log": "; ".join(lines)}

    async with Executor() as executor:
        run = await executor.start(single(work), "?")
        assert run.status == "completed", run.error
        assert run.values["log"][0].split("; ") == [
            "teams users/42",
            "note users/42 users/7",
            "True False None [('users', '42'), ('users', '7')]",
        ]


async def test_every_access_is_journaled_and_a_replay_touches_nothing() -> None:
    store = Accessed()
    async with Executor(store, graphs=[VISIT]) as executor:
        run = await executor.start(VISIT, "?")
        names = [e.data["name"] async for e in executor.events(run.run_id) if e.type == "effect_intended"]
        assert names == ["memory.get", "memory.put"]
        await executor.memory.put(USER, "visits", 99)
        counted = store.gets, store.puts
        for live in ("never", "always"):
            replay = await executor.replay(run.run_id, live=live)
            assert replay.same
            assert replay.run.output == ["visit 1"]
        assert (store.gets, store.puts) == counted


async def test_a_fork_keeps_what_its_prefix_read_and_wrote() -> None:
    async def last(state: Log, ctx: Context) -> Update:
        item = await ctx.memory.get(USER, "visits")
        return {"log": f"left with {None if item is None else item.value}"}

    graph, store = chain(visit, node(last), name="two"), Accessed()
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, "?")
        landed = [e.seq async for e in executor.events(run.run_id) if e.type == "step_done"]
        await executor.memory.put(USER, "visits", 50)
        puts = store.puts
        fork = await executor.fork(run.run_id, at=landed[0])
        assert fork.values["log"] == ["visit 1", "left with 50"]
        assert store.puts == puts


async def test_a_step_that_begins_anew_finds_its_accesses_as_they_were() -> None:
    async def work(state: Log, ctx: Context) -> Update:
        item = await ctx.memory.get(USER, "n")
        await ctx.memory.put(USER, "n", 1)
        answer = await ctx.ask("input", prompt="go on?")
        return {"log": f"{None if item is None else item.value} {getattr(answer, 'value', None)}"}

    graph, store = single(work), Accessed()
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, "?")
        await executor.memory.put(USER, "n", 2)
        run = await executor.answer(run.run_id, run.waiting[0].id, "yes")
        assert run.values["log"] == ["None yes"]
        item = await executor.memory.get(USER, "n")
        assert item is not None
        assert (item.value, store.puts) == (2, 2)


DYING = """
import os, signal, sys
import anyio
from orchestrator import Executor
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.test_memory import VISIT

class Dying(SQLiteStore):
    async def put_item(self, *args, **more):
        await super().put_item(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

async def begin():
    async with Executor(Dying(sys.argv[1]), graphs=[VISIT]) as executor:
        await executor.start(VISIT, "?", run_id="r")

anyio.run(begin, backend=sys.argv[2])
"""


async def test_a_process_killed_between_a_write_and_its_record_writes_once(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    path = tmp_path / "runs.db"
    ended = run_program([DYING, path, anyio_backend_name])
    assert ended.code == -signal.SIGKILL, ended
    async with Executor(f"sqlite:///{path}", graphs=[VISIT]) as executor:
        item = await executor.memory.get(USER, "visits")
        assert item is not None
        assert item.value == 1
        await executor.memory.put(USER, "visits", 7)
        run = await executor.resume("r")
        assert run.output == ["visit 1"]
        again = await executor.memory.get(USER, "visits")
        assert again is not None
        assert again.value == 7, "the write that had been made was made again"


async def test_runs_survive_a_stop_at_every_write() -> None:
    async def work(state: Log, ctx: Context) -> Update:
        await ctx.memory.put(USER, "a", {"text": "tea"})
        found = await ctx.memory.search((), "tea")
        gone = await ctx.memory.delete(USER, "a")
        return {"log": f"{[one.key for one in found]} {gone} {len(await ctx.memory.list())}"}

    report = await assert_crash_safe(single(work), "?")
    assert report.stops > 8


async def test_values_that_cannot_be_kept_are_refused_before_anything_is_journaled() -> None:
    refused: list[str] = []
    cycle: list[object] = []
    cycle.append(cycle)
    wrong: list[tuple[Any, Any, Any, dict[str, Any]]] = [
        ("users", "k", 1, {}), ((), "k", 1, {}), (("a",) * 21, "k", 1, {}), (("",), "k", 1, {}), (("a\n",), "k", 1, {}),
        ((1,), "k", 1, {}), (("\ud800",), "k", 1, {}), (("a",), "", 1, {}), (("a",), "x" * 201, 1, {}),
        (("a",), None, 1, {}), (("a",), "k", float("nan"), {}), (("a",), "k", "\ud800", {}), (("a",), "k", cycle, {}),
        (("a",), "k", object(), {}), (("a",), "k", "x" * 1001, {}), (("a",), "k", 1, {"expires": 0}),
        (("a",), "k", 1, {"expires": -1}), (("a",), "k", 1, {"expires": float("inf")}),
        (("a",), "k", 1, {"expires": "1"}), (("a",), "k", 1, {"expires": True}), (("a",), "k", 1, {"text": "x" * 1001}),
        (("a",), "k", 1, {"text": 5}),
    ]  # fmt: skip

    async def work(state: Log, ctx: Context) -> Update:
        for namespace, key, value, more in wrong:
            with pytest.raises(InvalidValue):
                await ctx.memory.put(namespace, key, value, **more)
            refused.append(repr(key))
        for call in (
            ctx.memory.get("users", "k"), ctx.memory.search((), "x", limit=0), ctx.memory.search((), "\ud800"),
            ctx.memory.search((), "x", by="magic"), ctx.memory.list(limit=1001), ctx.memory.search((), 5),  # type: ignore[arg-type]
        ):  # fmt: skip
            with pytest.raises(InvalidValue):
                await call
        with pytest.raises(ValueError, match="embedding function"):
            await ctx.memory.search((), "x", by="meaning")
        return {"log": "done"}

    async with Executor(memory=MemoryOptions(max_value=1000)) as executor:
        run = await executor.start(single(work), "?")
        assert run.status == "completed", run.error
        assert len(refused) == len(wrong)
        assert not [e async for e in executor.events(run.run_id) if e.type.startswith("effect")]
        assert await executor.memory.list() == []


async def test_secrets_are_in_neither_memory_nor_journal() -> None:
    secret = "zq7-very-secret-memory-key"
    know(secret)

    async def work(state: Log, ctx: Context) -> Update:
        await ctx.memory.put(USER, "a", {"key": f"it is {secret}"}, text=f"the key {secret}")
        with pytest.raises(SecretInState):
            await ctx.memory.put(USER, "b", {"key": SecretStr(secret)})
        for namespace, key in ((USER, secret), ((secret,), "a")):
            with pytest.raises(InvalidValue, match="contains a secret") as caught:
                await ctx.memory.get(namespace, key)
            assert secret not in str(caught.value)
        await ctx.memory.search((), f"is it {secret}?")
        return {"log": "done"}

    async with Executor() as executor:
        run = await executor.start(single(work), "?")
        assert run.status == "completed", run.error
        (item,) = await executor.memory.list()
        assert item.value == {"key": "it is [redacted]"}
        records = [str(record) for record in await executor.store.read(run.run_id)]
        assert not any(secret in record for record in records)


async def test_memory_that_is_full_raises_the_same_error_each_time() -> None:
    async def work(state: Log, ctx: Context) -> Update:
        log = []
        for key in ("a", "b"):
            try:
                await ctx.memory.put(USER, key, "x" * 50)
            except MemoryFull as error:
                log.append(str(error))
        answer = await ctx.ask("input", prompt="go on?")
        return {"log": "|".join([*log, str(getattr(answer, "value", ""))])}

    graph = single(work)
    async with Executor(graphs=[graph], memory=MemoryOptions(max_bytes=150)) as executor:
        run = await executor.start(graph, "?")
        run = await executor.answer(run.run_id, run.waiting[0].id, "yes")
        full, last = run.values["log"][0].split("|")
        assert "the limit of the store's items is 150" in full
        assert last == "yes"
        assert [item.key for item in await executor.memory.list()] == ["a"]


@pytest.mark.parametrize("sync", [True, False])
async def test_search_by_meaning_compares_vectors_of_the_executors_function(sync: bool) -> None:
    asked: list[str] = []

    def vectors(texts: list[str]) -> Sequence[Sequence[float]]:
        asked.extend(texts)
        return [[text.count("tea") + 0.0, text.count("car") + 0.0, 0.1] for text in texts]

    async def later(texts: list[str]) -> Sequence[Sequence[float]]:
        return vectors(texts)

    async def work(state: Log, ctx: Context) -> Update:
        await ctx.memory.put(USER, "drinks", ["tea", "more tea"])
        await ctx.memory.put(USER, "drives", {"what": "a car", "since": 2020})
        await ctx.memory.put(USER, "flag", True)
        near = await ctx.memory.search((), "tea time")
        words = await ctx.memory.search((), "2020 flag", by="words")
        return {"log": " ".join(one.key for one in [*near, *words])}

    graph = single(work)
    async with Executor(graphs=[graph], memory=MemoryOptions(embed=vectors if sync else later)) as executor:
        run = await executor.start(graph, "?")
        assert run.values["log"] == ["drinks flag drives flag drives"], run.error
        assert asked == ["tea\nmore tea", "a car\n2020", "flag", "tea time"]
        assert (await executor.replay(run.run_id)).same
        assert len(asked) == 4


@pytest.mark.parametrize("found", [[], [[1.0], [2.0]], None, "x", [[]], [[float("nan")]], [["x"]], [[1e300]]])
async def test_an_embedding_function_that_returns_no_vector_changes_nothing(found: Any) -> None:
    async with Executor(memory=MemoryOptions(embed=lambda texts: found)) as executor:
        with pytest.raises(InvalidValue, match="embedding"):
            await executor.memory.put(USER, "a", 1)
        assert await executor.memory.list() == []


async def test_expired_items_are_gone_and_pruned() -> None:
    async with Executor(memory=MemoryOptions(expires=1e-9)) as executor:
        await executor.memory.put(USER, "a", 1)
        assert await executor.memory.get(USER, "a") is None
        await executor.memory.put(USER, "b", 1, expires=1e6)
        assert [item.key for item in await executor.memory.list()] == ["b"]
        assert (await executor.memory.usage()).items == 1, "a write removes what has expired"
        await executor.memory.put(USER, "a", 1)
        pruned = await executor.prune(keep=0, dry_run=True)
        assert pruned.items == 1
        assert (await executor.prune(keep=0)).items == 1
        assert (await executor.memory.usage()).items == 1
        assert await executor.memory.prune(("users",), older_than=timedelta(days=1)) == 0
        assert await executor.memory.prune(("users",), older_than=timedelta(0)) == 1


async def test_a_store_that_fails_interrupts_the_run_and_it_goes_on() -> None:
    class Failing(MemoryStore):
        works = False

        async def item(self, area: Area, namespace: tuple[str, ...], key: str) -> Item | None:
            if not self.works:
                raise StoreUnavailable("the store is busy")
            return await super().item(area, namespace, key)

    store = Failing()
    async with Executor(store, graphs=[VISIT]) as executor:
        with pytest.raises(StoreUnavailable):
            await executor.start(VISIT, "?", run_id="r")
        assert (await executor.load("r")).status == "interrupted"
        store.works = True
        assert (await executor.resume("r")).output == ["visit 1"]


async def test_graphs_called_as_tools_share_the_memory_of_their_caller() -> None:
    inner: Graph = VISIT

    async def work(state: Log, ctx: Context) -> Update:
        await ctx.tool("visit", question="?")
        result = await ctx.tool("visit", question="!")
        return {"log": str(result.output)}

    graph = single(work)
    async with Executor(graphs=[graph], tools=[inner.as_tool(name="visit", description="Visits.")]) as executor:
        run = await executor.start(graph, "?", approve="dangerous")
        assert run.values["log"] == ["['visit 2']"], run.error


async def test_the_result_of_an_access_is_plain_json() -> None:
    store = MemoryStore()
    made = MemoryAccess(store, MemoryOptions())
    await made.make(Access("put", {"namespace": ["a"], "key": "k", "value": {"b": [1]}}))
    found = await made.make(Access("get", {"namespace": ["a"], "key": "k"}))
    assert {**found, "created": 0, "updated": 0} == {
        "namespace": ["a"], "key": "k", "value": {"b": [1]}, "created": 0, "updated": 0, "expires": None,
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [{"expires": 0}, {"max_value": 0}, {"max_bytes": -1}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give"):
        MemoryOptions(**wrong)


@pytest.mark.parametrize(
    "value",
    [b"x", {1, 2}, {1: 2}, (1, 2), datetime(2026, 1, 1), {"a": (1,)}, [{"a": [None, {"b": {2.0: 1}}]}]],
    ids=repr,
)
async def test_a_value_that_would_not_be_read_back_equal_is_refused(value: Any) -> None:
    async with Executor() as executor:
        with pytest.raises(InvalidValue, match=r"the value of memory item 'k'.* would not be read back equal"):
            await executor.memory.put(USER, "k", value)
        assert await executor.memory.get(USER, "k") is None
        equal = {"a": [1, 2.5, None, True, "é"], "b": {}}
        await executor.memory.put(USER, "k", equal)
        item = await executor.memory.get(USER, "k")
        assert item is not None
        assert item.value == equal


async def test_bad_arguments_raise_one_kind_of_error_that_names_them() -> None:
    odd: Any = "x"
    async with Executor() as executor:
        memory = executor.memory
        for call, name in (
            (memory.list((), after=odd), "after"),
            (memory.prune((), older_than=odd), "older_than"),
            (memory.prune((), older_than=timedelta(-1)), "older_than"),
            (memory.search((), "x", by="meaning"), "by"),
            (memory.search((), "x", by=odd), "by"),
            *((memory.put(USER, "k", 1, expires=many), "expires") for many in (1e300, 10**30, 10**400, float("nan"))),
        ):
            with pytest.raises(InvalidValue, match=f"^{name}=") as caught:
                await call
            assert caught.value.where == name
        await memory.put(USER, "k", 1, expires=100 * 365 * 86400)
    with pytest.raises(InvalidValue, match="100 years"):
        MemoryOptions(expires=1e300)
