"""Connections that break in the middle of a write: whatever became of it, the caller sees one write.

A proxy breaks the connection at each exchange of each method that writes: the server never learns of it (`before`), or
does it and its answer is lost (`after`), or learns of it when the caller has asked again (`late`).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import psycopg
import pytest

from orchestrator.errors import RunUnknown
from orchestrator.kernel.records import EventReceived, RunStarted
from orchestrator.stores import Store, open_store
from orchestrator.stores.items import AREAS, Item, ItemWrite
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, RunQuery
from orchestrator.stores.rows import NOTICE, Lease, RunInfo, RunSummary, Schedule
from tests.support.pg_proxy import Exchange, Proxy, Side, proxy
from tests.support.postgres import PASSWORD, USER, PostgresDatabase
from tests.support.sizes import FULL, quick_on, sized

SIDES: tuple[Side, ...] = get_args(Side)


@pytest.fixture
def between(postgres: PostgresDatabase) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    with proxy(postgres.server.port) as found:
        yield found


def through(between: Proxy, database: PostgresDatabase, **parameters: object) -> str:
    """The URL of a database by a proxy."""
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{between.port}/{database.name}" + (query and f"?{query}")


# -- the proxy itself, with a client that knows nothing of stores ------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("place", ["BEGIN", "INSERT", "COMMIT"])
def test_the_proxy_loses_the_exchange_that_it_is_told_to(
    between: Proxy, postgres: PostgresDatabase, side: Side, place: str
) -> None:
    postgres.execute("CREATE TABLE told (number int)")
    with closing(psycopg.connect(through(between, postgres), prepare_threshold=None)) as client:
        between.cut_at(1, side, lambda exchange: exchange.text.startswith(place))
        with pytest.raises(psycopg.OperationalError), client.transaction():
            client.execute("INSERT INTO told VALUES (%s)", (1,))
    assert between.cuts == 1
    assert between.deliver() == (side == "late")
    count = int(place == "COMMIT" and side != "before")
    assert postgres.execute("SELECT count(*) FROM told") == [(count,)]


# -- stores ------------------------------------------------------------------------------------------------------------

Act = Callable[[Store, str], Awaitable[object]]


@dataclass(frozen=True)
class Write:
    """One method that writes, with what has to be there before. Both get a text that is in all names of a trial."""

    act: Act
    before: Act | None = None
    late: bool = True
    """Whether what reaches the server late is waited for: a claim passes over what is locked."""


def started(info: RunInfo) -> RunStarted:
    return RunStarted(
        seq=1, ts=1.5, run_id=info.run_id, graph=info.graph, structure="s", content=info.content, values={"n": 1},
        labels={"a": "b"}, rules=2,
    )  # fmt: skip


def event(seq: int, data: object = None) -> EventReceived:
    return EventReceived(seq=seq, ts=1000.0 + seq, name="event", data=data)


def lease_of(tag: str, token: str = "token") -> Lease:
    return Lease(f"run {tag}", f"{token} {tag}", f"holder of {token} {tag}", {"host": "h", "machine": "m", "pid": 7})


async def run(store: Store, tag: str, *, lease: Lease | None = None, graph: str = "g", ttl: float = 600.0) -> None:
    info = RunInfo(f"run {tag}", graph, "running", {"a": "b"}, 1.5, 2.5, 1, "s", f"digest {tag}")
    await store.create(NewRun(info, [started(info)], graph={"of": tag}, lease=lease, ttl=ttl))


async def held(store: Store, tag: str) -> None:
    await run(store, tag, lease=lease_of(tag))


async def expired(store: Store, tag: str) -> None:
    await run(store, tag, lease=lease_of(tag, "old"), ttl=0.0)


async def append(store: Store, tag: str, **options: Any) -> object:
    return await store.append(Append(
        f"run {tag}", [event(2, "x\0y"), event(3)], after=1, lease=f"token {tag}",
        summary=RunSummary(output="done", steps=2), snapshot=b"folded", **options,
    ))  # fmt: skip


async def post(store: Store, tag: str, **options: Any) -> object:
    number = await store.post(f"run {tag}", {"type": "said", "n": 1}, **options)
    return [message.id == number for message in await store.inbox([f"run {tag}"])]


async def noticed(store: Store, tag: str) -> object:
    number = await store.post(f"run {tag}", {"type": NOTICE, "n": 1})
    return [message.id == number for message in await store.notices() if message.run_id == f"run {tag}"]


async def claim(store: Store, tag: str) -> object:
    found = await store.claim(ClaimRequest(Owner.here(), graphs=[f"graph {tag}"], limit=5, ttl=600.0))
    return [
        (info.run_id, lease.run_id, (await store.lease(info.run_id) or lease_of("")).token == lease.token)
        for info, lease in found
    ]


async def read(store: Store, tag: str) -> None:
    await run(store, tag)
    await post(store, tag)


async def discard(store: Store, tag: str) -> object:
    await store.discard([message.id for message in await store.inbox([f"run {tag}"])])
    return None


def schedule(tag: str) -> Schedule:
    return Schedule(f"schedule {tag}", "g", "0 9 * * *", 100.0)


def item(tag: str, value: int = 1) -> Item:
    return Item(("space", tag), "key", json.dumps(value), f"words {tag}")


async def wrote(store: Store, tag: str) -> None:
    await run(store, tag)
    await store.put_item("memory", item(tag))


WRITES: dict[str, Write] = {
    "create": Write(lambda store, tag: run(store, tag, lease=lease_of(tag))),
    "create for workers": Write(run),
    "append": Write(append, held),
    "append that ends": Write(lambda store, tag: append(store, tag, status="completed", release=True), held),
    "append without a lease": Write(lambda store, tag: store.append(Append(f"run {tag}", [event(2)], after=1)), run),
    "put_graph": Write(lambda store, tag: store.put_graph(f"digest {tag}", {"of": tag})),
    "put_snapshot": Write(lambda store, tag: store.put_snapshot(f"run {tag}", 1, b"folded"), run),
    "take_lease": Write(lambda store, tag: store.take_lease(lease_of(tag), ttl=600.0), run),
    "take_lease that expired": Write(lambda store, tag: store.take_lease(lease_of(tag), ttl=600.0), expired),
    "take_lease by name": Write(
        lambda store, tag: store.take_lease(lease_of(tag, "new"), ttl=600.0, replaces=f"token {tag}"), held
    ),
    "beat": Write(lambda store, tag: store.beat(lease_of(tag).holder, 600.0), held),
    "drop_lease": Write(lambda store, tag: store.drop_lease(f"run {tag}", f"token {tag}"), held),
    "drop_lease with a fault": Write(
        lambda store, tag: store.drop_lease(f"run {tag}", f"token {tag}", fault="it broke"), held
    ),
    "claim": Write(claim, lambda store, tag: run(store, tag, graph=f"graph {tag}"), late=False),
    "claim of an expired one": Write(
        claim, lambda store, tag: run(store, tag, graph=f"graph {tag}", lease=lease_of(tag, "old"), ttl=0.0), late=False
    ),
    "post": Write(post, run),
    "post under a key": Write(lambda store, tag: post(store, tag, key=f"key {tag}"), run),
    "post of a notice": Write(noticed, run),
    "discard": Write(discard, read),
    "delete": Write(lambda store, tag: store.delete(f"run {tag}"), held),
    "put_schedule": Write(lambda store, tag: store.put_schedule(schedule(tag))),
    "move_schedule": Write(
        lambda store, tag: store.move_schedule(f"schedule {tag}", at=100.0, to=200.0),
        lambda store, tag: store.put_schedule(schedule(tag)),
    ),
    "delete_schedule": Write(
        lambda store, tag: store.delete_schedule(f"schedule {tag}"),
        lambda store, tag: store.put_schedule(schedule(tag)),
    ),
    "put_item": Write(lambda store, tag: store.put_item("memory", item(tag))),
    "put_item over another": Write(lambda store, tag: store.put_item("memory", item(tag, 2)), wrote),
    "put_item of a call": Write(
        lambda store, tag: store.put_item("memory", item(tag, 2), write=ItemWrite(f"run {tag}", f"call {tag}")), wrote
    ),
    "delete_item": Write(lambda store, tag: store.delete_item("memory", ("space", tag), "key"), wrote),
    "delete_item of a call": Write(
        lambda store, tag: store.delete_item(
            "memory", ("space", tag), "key", write=ItemWrite(f"run {tag}", f"call {tag}")
        ),
        wrote,
    ),
    "prune_items": Write(lambda store, tag: store.prune_items("memory", ("space", tag), older_than=0.0), wrote),
    "add_item": Write(lambda store, tag: store.add_item("cache", replace(item(tag), created=1.0, updated=1.0))),
}


async def facts(store: Store, tag: str) -> dict[str, Any]:
    """All that a store says about a trial, but for times by its clock and ids that it gives."""
    run_id = f"run {tag}"
    found: dict[str, Any] = {
        "schedules": [one for one in await store.schedules() if one.name == f"schedule {tag}"],
        "items": [
            (area, one.key, one.data, one.text, (await store.search_items(area, ("space", tag), tag, limit=5)) != [])
            for area in AREAS
            for one in await store.items(area, ("space", tag))
        ],
    }
    try:
        info = await store.info(run_id)
    except RunUnknown:
        return found
    lease = await store.lease(run_id)
    return found | {
        "info": replace(info, retry_at=info.retry_at and 1.0, lease=None),
        "records": await store.read(run_id),
        "lease": lease and (lease.token if lease.holder.startswith("holder of") else "of a claimer"),
        "beating": lease is not None and lease.left > 0,
        "inbox": [message.body for message in await store.inbox([run_id])],
        "notices": [message.body for message in await store.notices() if message.run_id == run_id],
        "snapshot": await store.snapshot(run_id),
        "graph": await store.graph(info.content),
        "totals": await store.totals(run_id),
        "listed": [
            one.run_id for one in (await store.runs(RunQuery(search="done", limit=1000))).runs if one.run_id == run_id
        ],
    }


def asks(text: str, exchange: Exchange) -> bool:
    """Whether an exchange is the one with this text."""
    return exchange.text == text


def untagged(found: object, tag: str) -> str:
    """As a text that is the same for all trials."""
    return repr(found).replace(tag, "TAG")


@pytest.fixture
async def stores(between: Proxy, postgres: PostgresDatabase) -> AsyncIterator[tuple[Store, Store]]:
    """A store by the proxy, and the same one directly."""
    found = open_store(through(between, postgres, listen=0)), open_store(postgres.url)
    yield found
    for one in found:
        await one.close()


async def tried(name: str, between: Proxy, stores: tuple[Store, Store], tag: str) -> tuple[str, list[Exchange]]:
    """What came of one write, and what it asked the server."""
    cut, direct = stores
    write = WRITES[name]
    if write.before is not None:
        await write.before(direct, tag)
    result = await write.act(cut, tag)
    seen = between.seen
    between.stop_watching()
    return untagged((result, await facts(direct, tag)), tag), seen


@pytest.mark.anyio
@quick_on("asyncio")
@pytest.mark.parametrize("name", sized([*WRITES][::3], [*WRITES]))
async def test_a_write_whose_connection_breaks_is_made_once(
    name: str, between: Proxy, postgres: PostgresDatabase, stores: tuple[Store, Store]
) -> None:
    await run(stores[0], "first")  # it has its connections now
    await stores[0].put_item("memory", item("first"))
    await stores[0].beat("nobody", 0.0)
    await facts(stores[0], "first")
    between.watch()
    whole, exchanges = await tried(name, between, stores, "t0")
    whole, exchanges = await tried(name, between, stores, "t1")
    write = WRITES[name]
    assert exchanges, "it asked the server nothing"
    texts = list(dict.fromkeys(exchange.text for exchange in exchanges))
    decisive = [text for text in texts if re.match(r"COMMIT$|(INSERT|UPDATE|DELETE|WITH)\b", text)]
    trials: list[tuple[Side, str]] = [(side, text) for side in SIDES[:2] for text in (texts if FULL else decisive[-1:])]
    trials += [("late", text) for text in decisive[-1:] if write.late]
    cuts = 0
    for number, (side, text) in enumerate(trials):
        between.cut_at(1, side, partial(asks, text))
        found, _ = await tried(name, between, stores, f"t2.{number}")
        cuts += between.cuts
        at = f"cut {side} {text!r}"
        assert found == whole, at
        if between.deliver():
            again = await facts(stores[1], f"t2.{number}")
            assert untagged(again, f"t2.{number}") in whole, f"{at}, and when that came late"
    assert cuts >= 2, "no connection was cut"
    findings = await stores[1].check()
    assert [one for one in findings if not one.note and not one.what.startswith("graph ")] == []  # ours draw nothing
