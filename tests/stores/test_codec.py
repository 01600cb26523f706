"""Values that a codec encrypts: other keys, other places, damage, stores with and without them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Outcome, Update, Value, node
from orchestrator.comparison import compare
from orchestrator.errors import (
    EncryptionKeyMissing,
    InvalidValue,
    RunConflict,
    RunExists,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from orchestrator.executor.schedules import fire_due
from orchestrator.kernel.records import EventReceived, as_coded, decode, encode
from orchestrator.nodes import Ask
from orchestrator.stores import Lease, Store, open_store, with_codec
from orchestrator.stores.base import Alerting, Changing, Placing
from orchestrator.stores.codec import About, AESGCMCodec, Codec, about_bytes, new_key
from orchestrator.stores.coded import CodedStore, Values
from orchestrator.stores.copying import copy_store
from orchestrator.stores.items import Item, packed
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.owner import held_here
from orchestrator.stores.requests import Append, ClaimRequest, NewRun
from orchestrator.stores.rows import OpenQuestion, RunSummary, Schedule
from orchestrator.testing.store_conformance.helpers import an_owner, created, event, new_run
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def codec(**keys: bytes) -> AESGCMCodec:
    return AESGCMCodec(keys or {"k1": OLD})


class State(BaseModel):
    text: str = ""
    n: int = 0


@node
def shout(state: State) -> Update:
    return {"text": state.text.upper()}


@node(outcomes=("again", "enough"))
def count(state: State) -> Outcome:
    return Outcome("again" if state.n < 60 else "enough", n=state.n + 1)


@node
async def recall(state: State, ctx: Context) -> Update:
    item = await ctx.memory.get(("notes",), "one")
    return {"text": "" if item is None else str(item.value)}


ASKING = Graph(
    name="asking", state=State, input="text", output="text",
    nodes={"count": count, "ask": Ask(prompt="{text}?", answer="text", show=("text",)), "shout": shout},
    edges="START -> count\ncount -> count : again\ncount -> ask : enough\nask -> shout -> END",
)  # fmt: skip
SHOUT = Graph(
    name="shout", state=State, input="text", output="text", nodes={"shout": shout}, edges="START -> shout -> END"
)
RECALL = Graph(
    name="recall", state=State, input="text", output="text", nodes={"recall": recall}, edges="START -> recall -> END"
)
GRAPHS = [ASKING, SHOUT, RECALL]


@pytest.fixture(params=["memory", "sqlite"])
async def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    store = open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db")
    yield store
    await store.close()


def executor(store: Store, with_keys: Codec | None = None) -> Executor:
    return Executor(store, graphs=GRAPHS, codec=with_keys)


# -- keys --------------------------------------------------------------------------------------------------------------


async def test_the_first_key_writes_and_all_of_them_read(inner: Store) -> None:
    async with executor(inner, codec(a=OLD)) as ex:
        run = await ex.start(ASKING, "tea", run_id="r")
    async with executor(inner, codec(b=NEW, a=OLD)) as ex:
        assert (await ex.answer("r", run.waiting[0].id, Value(value="cake"))).output == "CAKE"
    assert {as_coded(one).key_id for one in await inner.read("r")} == {"a", "b"}  # type: ignore[union-attr]
    async with executor(inner, codec(b=NEW)) as ex:
        with pytest.raises(EncryptionKeyMissing, match=r"encrypted with key 'a'.* no key with this id; it has 'b'"):
            await ex.load("r")


async def test_another_key_of_the_same_id_is_told_from_damage(inner: Store) -> None:
    async with executor(inner, codec(a=OLD)) as ex:
        await ex.start(SHOUT, "tea", run_id="r")
    async with executor(inner, codec(a=NEW)) as ex:
        with pytest.raises(EncryptionKeyMissing, match="the key with this id is another one") as caught:
            await ex.load("r")
    assert caught.value.key_id == "a"
    for text in (str(caught.value), caught.value.typed, repr(codec(a=NEW))):
        assert not any(form in text for form in (NEW.hex(), repr(NEW), OLD.hex()))


async def test_without_a_codec_everything_says_which_key_is_missing(inner: Store) -> None:
    async with executor(inner, codec()) as ex:
        await ex.start(ASKING, "the question", run_id="r")
        await ex.start(RECALL, "x", run_id="m")
        await ex.memory.put(("notes",), "one", {"a": "secret"})
        await ex.schedules.put(SHOUT, "* * * * *", "tea", name="s")
    async with executor(inner) as ex:
        await ex.start(SHOUT, "clear", run_id="clear")
        needs = "run 'r' is encrypted with key 'k1', which is missing here"
        for call in (
            ex.load("r"), ex.history("r"), ex.resume("r"), ex.fork("r", at=1), ex.cancel("r"), ex.diff("r", "clear"),
            ex.answer("r", "q", Value(value=1)), ex.replay("r"), ex.start(ASKING, "the question", run_id="r"),
        ):  # fmt: skip
            with pytest.raises(EncryptionKeyMissing, match=re.escape(needs)):
                await call
        rows = {info.run_id: info for info in (await ex.runs()).runs}
        assert rows["clear"].output == "CLEAR"
        assert (rows["r"].input, rows["r"].error, rows["r"].question) == ("(encrypted with key 'k1')", "", "")
        (one,) = (await ex.questions()).questions
        assert (one.run_id, one.question.prompt) == ("r", "(encrypted with key 'k1')")
        assert [info.run_id for info in (await ex.runs(q="question")).runs] == []
        with pytest.raises(EncryptionKeyMissing, match="item 'one' in notes is encrypted with key 'k1'"):
            await ex.memory.get(("notes",), "one")
        failed = await ex.start(RECALL, "x", run_id="n")
        assert failed.status != "completed", "the run must not take the ciphertext for the value"
        await ex.store.move_schedule("s", at=(await ex.schedules.list())[0].next_at, to=1.0)
        assert await fire_due(ex._host) == []
    other_key = AESGCMCodec({"k1": bytes(range(1, 33))})
    for opened in (None, codec(k2=OLD), other_key):
        async with executor(inner, opened) as ex:
            found = await ex.check()
            assert not found.ok
            read = [info.run_id for info in (await ex.runs()).runs if info.run_id in ("clear", "n")]
            assert (found.runs, found.unread) == (len(read), 4), "two runs, an item and a schedule are not checked"
            told = [one for one in found.findings if "not checked: " in one.what]
            assert {one.run_id for one in told} == {"r", "m", ""}
            assert all("encrypted with key 'k1'" in one.what and one.note for one in told)


async def test_a_worker_without_the_key_leaves_a_run_to_one_that_has_it(inner: Store) -> None:
    async with executor(inner, codec()) as ex:
        await ex.enqueue(SHOUT, "tea", run_id="r")
    async with executor(inner) as ex:
        with anyio.move_on_after(0.6):
            await ex.work(poll=0.05)
        (row,) = (await ex.runs()).runs
        assert (row.deaths, row.retry_at is not None) == (1, True), "it is not claimed again at once"
        assert row.fault.startswith("EncryptionKeyMissing: run 'r' is encrypted with key 'k1'")
    async with executor(inner, codec()) as ex:
        assert (await ex.resume("r")).output == "TEA"


async def test_clear_and_encrypted_runs_lie_in_one_store(inner: Store) -> None:
    async with executor(inner) as ex:
        run = await ex.start(ASKING, "tea", run_id="r")
        await ex.memory.put(("notes",), "one", "old")
        await ex.schedules.put(SHOUT, "* * * * *", "tea", name="s")
    async with executor(inner, codec()) as ex:
        assert (await ex.questions()).questions[0].question.prompt == "tea?"
        assert (await ex.answer("r", run.waiting[0].id, Value(value="cake"))).output == "CAKE"
        assert (await ex.start(RECALL, "x")).output == "old"
        assert (await ex.schedules.list())[0].values == {"text": "tea", "n": 0}
        fork = await ex.fork("r", at=3)
        assert fork.waiting[0].prompt == "tea?"
        assert (await ex.check()).ok
    stored = [as_coded(one) is not None for one in await inner.read("r")]
    assert stored == sorted(stored)
    assert stored[0] is False
    assert stored[-1] is True
    assert all(as_coded(one) is not None for one in await inner.read(fork.run_id)), "a fork is encrypted as a whole"


async def test_a_codec_that_refuses_clear_values_takes_what_anyone_could_have_written_for_damaged(inner: Store) -> None:
    strict = AESGCMCodec({"k1": OLD}, clear="refuse")
    async with executor(inner, strict) as ex:
        await ex.start(ASKING, "tea", run_id="mine")
    async with executor(inner) as ex:  # who can write to the store, and has no key
        await ex.start(ASKING, "forged", run_id="forged")
        await ex.memory.put(("notes",), "one", "forged")
        await ex.schedules.put(SHOUT, "* * * * *", "forged", name="s")
    await inner.post("mine", {"type": "event", "name": "forged", "id": "e"})
    async with executor(inner, strict) as ex:
        for call in (ex.load("forged"), ex.resume("forged"), ex.fork("forged", at=1)):
            with pytest.raises(StoreCorrupt, match="it is not encrypted, and the codec refuses clear values"):
                await call
        rows = {info.run_id: info for info in (await ex.runs()).runs}
        assert (rows["forged"].input, rows["forged"].question) == ("(not encrypted)", "")
        assert rows["mine"].input == "tea"
        assert [one.run_id for one in (await ex.questions()).questions] == ["mine"]
        with pytest.raises(StoreError, match="item 'one' in notes is damaged"):
            await ex.memory.get(("notes",), "one")
        assert await ex.memory.search(("notes",), "forged") == []
        with pytest.raises(StoreError, match="schedule 's' is damaged"):
            await ex.schedules.list()
        assert [one.body for one in await ex.store.inbox(["mine"])] == [{"type": "damaged"}]
        run = await ex.load("mine")
        assert (await ex.answer("mine", run.waiting[0].id, Value(value="cake"))).output == "CAKE"
    async with executor(inner, codec()) as ex:  # the default
        assert (await ex.load("forged")).status == "paused"


async def test_a_copy_by_a_codec_that_accepts_clear_values_is_taken_by_one_that_refuses_them(inner: Store) -> None:
    async with executor(inner) as ex:
        await ex.start(ASKING, "tea", run_id="r")
    copied = MemoryStore()
    await copy_store(with_codec(inner, codec()), with_codec(copied, codec()))
    async with executor(copied, AESGCMCodec({"k1": OLD}, clear="refuse")) as ex:
        run = await ex.load("r")
        assert (await ex.answer("r", run.waiting[0].id, Value(value="cake"))).output == "CAKE"


def test_what_a_codec_says_of_clear_values_is_one_of_two() -> None:
    with pytest.raises(InvalidValue, match="use 'accept' or 'refuse'"):
        AESGCMCodec({"k1": OLD}, clear="maybe")  # type: ignore[arg-type]  it is wrong
    odd = codec()
    odd.clear = "maybe"  # type: ignore[assignment]  it is wrong
    with pytest.raises(InvalidValue, match="use 'accept' or 'refuse'"):
        with_codec(MemoryStore(), odd)


async def test_the_ways_to_run_a_graph_take_a_codec(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    run = await SHOUT.run("zqplanted", store=url, run_id="r", codec=codec())
    assert run.output == "ZQPLANTED"
    compared = await compare("zqplanted", [SHOUT], store=url, codec=codec())
    assert [row.answer for row in compared.rows] == ["ZQPLANTED"]
    assert b"zqplanted" not in b"".join(path.read_bytes() for path in tmp_path.iterdir()).lower()
    async with Executor(url, graphs=GRAPHS, codec=codec()) as ex:
        assert {row.output for row in (await ex.runs()).runs} == {"ZQPLANTED"}


def test_keys_are_references_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"kind": "record", "run_id": "r"}
    key = new_key()
    monkeypatch.setenv("RUNS_KEY", key)
    one = AESGCMCodec({"a": "env:RUNS_KEY", "b": "env:MISSING_KEY"})
    assert one.decode(one.encode(b"x", about=about), key_id="a", about=about) == b"x"
    with pytest.raises(LookupError, match="the environment variable MISSING_KEY is not set"):
        one.check_keys()
    monkeypatch.setenv("MISSING_KEY", "dG9vIHNob3J0")
    with pytest.raises(LookupError, match="MISSING_KEY is not 32 bytes in base64") as caught:
        one.check_keys()
    assert "dG9v" not in str(caught.value)
    for keys in ({}, {"a": "plain"}, {"a": b"short"}, {"a b": OLD}, {"": OLD}, {"a": 7}, {"a\n": OLD}):
        with pytest.raises(InvalidValue):
            AESGCMCodec(keys)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(one)


async def test_what_is_no_codec_and_two_codecs_are_refused() -> None:
    with pytest.raises(InvalidValue, match="codec= is of type bytes: give an object"):
        Executor(codec=b"key")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="has a codec already"):
        Executor(open_store("memory://", codec=codec()), codec=codec())


# -- places ------------------------------------------------------------------------------------------------------------


async def two_runs() -> tuple[MemoryStore, CodedStore, str, str]:
    """A store with two runs of three records."""
    inner = MemoryStore()
    store = CodedStore(inner, codec())
    ids = [await created(store) for _ in range(2)]
    for run_id in ids:
        await store.append(Append(run_id, [event(2, "two"), event(3, "three")], after=1))
    return inner, store, *ids  # type: ignore[return-value]


async def is_damaged(store: Store, run_id: str, seq: int) -> None:
    """The record is damaged, and those before it are readable."""
    with pytest.raises(StoreCorrupt) as caught:
        await store.read(run_id)
    assert caught.value.seq == seq
    assert [one.seq for one in vars(caught.value)["records"]] == list(range(1, seq))
    with pytest.raises(StoreCorrupt):
        store.read_now(run_id, after=seq - 1)


def _fields(data: bytes, **changes: object) -> bytes:
    import json

    fields = {**json.loads(data), **changes}
    kind = fields.pop("type")
    return json.dumps({**fields, "type": kind}, separators=(",", ":")).encode()


async def test_a_record_is_of_one_run_one_place_and_one_type() -> None:
    inner, store, one, other = await two_runs()
    records = {run_id: list(inner._runs[run_id].records) for run_id in (one, other)}
    import json

    cipher = json.loads(records[one][2])["cipher"]
    for forged in (
        records[other][2],  # of another run
        _fields(records[one][2], cipher=json.loads(records[one][1])["cipher"]),  # of another place
        _fields(records[one][2], type="diverged"),
        _fields(records[one][2], ts=7.0),
        _fields(records[one][2], cipher=cipher[:-8]),
        _fields(records[one][2], cipher=""),
        _fields(records[one][2], cipher="*"),
        encode(event(3, "forged")),  # in the clear
    ):
        inner._runs[one].records[2] = forged
        await is_damaged(store, one, 3)
    inner._runs[one].records[2] = records[one][2]
    assert len(await store.read(one)) == 3


async def test_no_flipped_bit_is_decoded() -> None:
    import base64
    import json

    inner, store, one, _ = await two_runs()
    stored = inner._runs[one].records[1]
    cipher = base64.b64decode(json.loads(stored)["cipher"])
    for at in range(len(cipher)):
        flipped = bytearray(cipher)
        flipped[at] ^= 1 << (at % 8)
        inner._runs[one].records[1] = _fields(stored, cipher=base64.b64encode(flipped).decode())
        with pytest.raises((StoreCorrupt, EncryptionKeyMissing)):
            await store.read(one)


async def test_clear_records_behind_a_snapshot_are_refused_too() -> None:
    inner, store, one, _ = await two_runs()
    inner._runs[one].records[2] = encode(event(3, "forged"))
    for read in (store.read(one, after=2), store.read(one, after=2, limit=1)):
        with pytest.raises(StoreCorrupt, match="it is not encrypted, and those before it are"):
            await read


async def test_clear_records_behind_encrypted_ones_are_refused_in_a_run_that_began_without_a_codec(
    inner: Store,
) -> None:
    run_id = await created(inner)
    for after in (1, 2):
        await inner.append(Append(run_id, [event(after + 1)], after=after))
    store = with_codec(inner, codec())
    await store.append(Append(run_id, [event(4)], after=3))
    await inner.append(Append(run_id, [event(5), event(6)], after=4))
    for after in (4, 5):
        fresh = with_codec(inner, codec())
        assert len(await fresh.read(run_id, upto=4)) == 4
        for one in (fresh, with_codec(inner, codec())):
            with pytest.raises(StoreCorrupt, match="it is not encrypted, and those before it are"):
                await one.read(run_id, after=after)
            with pytest.raises(StoreCorrupt, match="it is not encrypted, and those before it are"):
                one.read_now(run_id, after=after)
            assert [record.seq for record in await one.read(run_id, after=1, upto=4)] == [2, 3, 4]


async def test_an_error_that_looks_like_an_encrypted_one_leaves_no_text_clear(inner: Store) -> None:
    store = with_codec(inner, codec())
    info, records = new_run()
    await store.create(NewRun(info, records))
    told = RunSummary("$encrypted k1 AAAA", "secret in", "secret out", "secret?")
    await store.append(Append(info.run_id, [event(2)], after=1, summary=told))
    assert "secret" not in repr(await inner.info(info.run_id))
    assert (await store.info(info.run_id)).summary == told


async def test_other_values_are_bound_to_their_place_as_well() -> None:
    inner, store, one, other = await two_runs()
    await store.append(Append(one, [event(4)], after=3, summary=RunSummary("e", "i", "o", "q")))
    assert (await store.info(one)).summary == RunSummary("e", "i", "o", "q")
    coded = inner._runs[one].info.error
    for text in (coded, coded[:-3], coded.replace(" k1 ", " "), "$encrypted k1 A", coded.rpartition(" ")[0]):
        inner._runs[other].info = inner._runs[other].info.changed(error=text)
        assert (await store.info(other)).input == "(encrypted, and damaged)"
    await store.put_snapshot(one, 3, b"{}")
    inner._runs[other].snapshots[3] = inner._runs[one].snapshots[3]
    inner._runs[one].snapshots[4] = inner._runs[one].snapshots[3]
    assert await store.snapshot(one, upto=3) == (3, b"{}")
    assert await store.snapshot(one) is None
    assert await store.snapshot(other) is None
    inner._runs[one].snapshots[4] = b"{}"
    assert await store.snapshot(one) is None, "anybody could have written it"
    first = await store.post(one, {"type": "answer", "by": "ann"})
    body = (await inner.inbox([one]))[0].body
    assert set(body) == {"type", "$encrypted"}
    await inner.post(other, body)
    await inner.post(one, {**body, "type": "cancel"})
    assert [(m.id == first, m.body["type"]) for m in await store.inbox([one])] == [(True, "answer"), (False, "damaged")]
    assert [m.body for m in await store.inbox([other])] == [{"type": "damaged"}]
    await store.put_schedule(Schedule("s", "g", "* * * * *", 1.0, values={"n": 1}))
    (schedule,) = await inner.schedules()
    await inner.put_schedule(replace(schedule, graph="other"))
    with pytest.raises(StoreError, match="schedule 's' is damaged"):
        await store.schedules()
    await store.put_item("memory", Item(("a",), "k", "1", "one", packed([1.0])))
    item = await inner.item("memory", ("a",), "k")
    assert item is not None
    await inner.put_item("memory", replace(item, key="other"))
    await inner.put_item("cache", item)
    assert [found.key for found in await store.items("memory", ("a",), limit=1)] == ["k"]
    for area, key in (("memory", "other"), ("cache", "k")):
        with pytest.raises(StoreError, match="is damaged"):
            await store.item(area, ("a",), key)  # type: ignore[arg-type]


# -- asked again, and errors -------------------------------------------------------------------------------------------


async def test_writes_that_are_asked_again_have_the_outcome_of_one(inner: Store) -> None:
    store = with_codec(inner, codec())
    info, records = new_run()
    lease = Lease(info.run_id, "t", "h")
    await store.create(NewRun(info, records, lease=lease))
    await store.create(NewRun(info, records, lease=lease))
    with pytest.raises(RunExists):
        await store.create(NewRun(info, records))
    more = [event(2, "x")]
    assert await store.append(Append(info.run_id, more, after=1, lease="t")) == 2
    assert await store.append(Append(info.run_id, more, after=1, lease="t")) == 2
    for again, token in (([event(2, "y")], "t"), (more, None), (more, "other")):
        with pytest.raises(RunConflict):
            await store.append(Append(info.run_id, again, after=1, lease=token))
    assert await store.append(Append(info.run_id, [event(3)], after=2, lease="t", release=True)) == 3
    assert await store.append(Append(info.run_id, [event(3)], after=2, lease="t", release=True)) == 3


async def test_a_claim_whose_codec_fails_leaves_no_run_to_who_does_not_know_of_it(inner: Store) -> None:
    info, records = new_run()
    await with_codec(inner, Service()).create(NewRun(info.changed(input="tea"), records))
    owner = an_owner()
    with pytest.raises(StoreUnavailable, match="the codec failed"):
        await with_codec(inner, Service(OSError())).claim(ClaimRequest(owner, graphs=None, limit=1, ttl=60.0))
    assert owner.executor not in held_here.values()
    ((taken, lease),) = await with_codec(inner, Service()).claim(
        ClaimRequest(an_owner(), graphs=None, limit=1, ttl=60.0)
    )
    assert (taken.run_id, taken.input) == (info.run_id, "tea")
    held_here.pop(lease.token)


async def test_a_lease_is_given_back_though_the_key_for_its_fault_is_missing(inner: Store) -> None:
    info, records = new_run()
    await with_codec(inner, codec(b=NEW)).create(NewRun(info, records, lease=Lease(info.run_id, "t", "h")))
    store = with_codec(inner, AESGCMCodec({"a": "env:NO_SUCH_VARIABLE_4711", "b": NEW}))
    await store.drop_lease(info.run_id, "t", fault="secret of zq")
    found = await inner.info(info.run_id)
    assert (found.lease, found.deaths) == (None, 1)
    assert "key 'a' is missing" in found.fault
    assert "secret" not in found.fault


class Service:
    """A codec of one's own: it fails as a key service may."""

    key_id = "arn:key/1"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def encode(self, data: bytes, *, about: About) -> bytes:
        return about_bytes(about) + b"\n" + data[::-1]

    def decode(self, data: bytes, *, key_id: str, about: About) -> bytes:
        if self.error is not None:
            raise self.error
        bound, _, rest = data.partition(b"\n")
        if bound != about_bytes(about):
            raise ValueError("it is of another place")
        return rest[::-1]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OSError("token=abc"), StoreUnavailable, r"the codec failed \(OSError\); nothing was changed"),
        (KeyError("arn:key/1"), EncryptionKeyMissing, "encrypted with key 'arn:key/1'"),
        (ValueError("token=abc"), StoreCorrupt, "it cannot be decrypted"),
    ],
)
async def test_errors_of_a_codec_of_ones_own_are_errors_of_the_store(
    error: Exception, kind: type[StoreError], said: str
) -> None:
    inner = MemoryStore()
    run_id = await created(with_codec(inner, Service()))
    assert len(await with_codec(inner, Service()).read(run_id)) == 1
    with pytest.raises(kind, match=said) as caught:
        await with_codec(inner, Service(error)).read(run_id)
    assert "token" not in str(caught.value)


async def test_an_executor_works_with_a_codec_of_ones_own(inner: Store) -> None:
    async with executor(inner, Service()) as ex:
        assert (await ex.start(SHOUT, "tea")).output == "TEA"


# -- what stays --------------------------------------------------------------------------------------------------------


async def test_a_search_finds_labels_only(inner: Store) -> None:
    async with executor(inner, codec()) as ex:
        await ex.start(SHOUT, "green tea", run_id="r", labels={"team": "north"})
        assert [one.run_id for one in (await ex.runs(search="north")).runs] == ["r"]
        assert (await ex.runs(search="green")).runs == ()
        assert [one.run_id for one in (await ex.runs(q="green north")).runs] == ["r"], "journals are decrypted"
        (row,) = (await ex.runs()).runs
        assert (row.input, row.output) == ("green tea", "GREEN TEA")


@quick_on("asyncio")
async def test_memory_is_searched_by_words_and_by_meaning(inner: Store) -> None:
    store = with_codec(inner, codec())
    for number, text in enumerate(("tea green", "coffee", "tea")):
        await store.put_item("memory", Item(("a",), str(number), f'"{text}"', text, packed([float(number), 1.0])))
    assert [one.item.key for one in await store.search_items("memory", ("a",), "tea", limit=9)] == ["2", "0"]
    assert [one.item.key for one in await store.nearest_items("memory", (), packed([2.0, 1.0]), limit=1)] == ["2"]
    assert await inner.search_items("memory", ("a",), "tea encrypted k1", limit=9) == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_copy_needs_no_key_and_changes_keys_if_it_has_them(anyio_backend: str) -> None:
    first, second, third = MemoryStore("memory://1"), MemoryStore("memory://2"), MemoryStore("memory://3")
    async with executor(first, codec(a=OLD)) as ex:
        await ex.start(ASKING, "tea", run_id="r")
        await ex.memory.put(("notes",), "one", "kept")
        await ex.schedules.put(SHOUT, "* * * * *", "tea", name="s")
        await ex.store.post("r", {"type": "cancel"})
    await copy_store(first, second)
    both = codec(b=NEW, a=OLD)
    await copy_store(with_codec(second, both), with_codec(third, both))
    async with executor(third, codec(b=NEW)) as ex:
        assert (await ex.load("r")).waiting[0].prompt == "tea?"
        assert (await ex.memory.get(("notes",), "one")).value == "kept"  # type: ignore[union-attr]
        assert (await ex.schedules.list())[0].values["text"] == "tea"
        assert [one.body for one in await ex.store.inbox(["r"])] == [{"type": "cancel"}]
        assert (await ex.check()).ok
    copied = await copy_store(with_codec(second, both), with_codec(third, both))
    assert (copied.skipped, copied.differing_items, copied.differing_schedules) == (("r",), (), ())


async def test_an_export_is_clear_and_an_import_is_encrypted() -> None:
    inner = MemoryStore()
    async with executor(MemoryStore(), codec()) as ex, executor(inner, codec(b=NEW)) as other:
        await ex.start(SHOUT, "tea", run_id="r")
        lines = [line async for line in ex.export("r")]
        assert any('"TEA"' in line for line in lines)
        await other.import_(lines)
        assert (await other.load("r")).output == "TEA"
    assert all(as_coded(one) is not None for one in await inner.read("r"))


async def test_snapshots_are_used_and_not_compressed(inner: Store) -> None:
    async with executor(inner, codec()) as ex:
        await ex.start(ASKING, "tea", run_id="r")
        kept = await ex.store.snapshot("r")
    assert kept is not None
    assert kept[1].startswith(b"{")
    stored = await inner.snapshot("r")
    assert stored is not None
    assert len(kept[1]) < len(stored[1]) < len(kept[1]) + 80


async def test_the_store_around_has_what_the_store_inside_has(inner: Store) -> None:
    store = with_codec(inner, codec())
    for protocol in (Alerting, Changing, Placing):
        assert isinstance(store, protocol) is isinstance(inner, protocol)
    assert isinstance(store, Store)
    assert store.url == inner.url


async def test_without_a_codec_the_store_is_not_wrapped(inner: Store) -> None:
    async with executor(inner) as ex:
        assert ex.store is inner


# -- round trips -------------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=40)
NAME = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXT, inside, max_size=3), max_leaves=9,
)  # fmt: skip
OBJECT: st.SearchStrategy[Mapping[str, object]] = st.dictionaries(TEXT, JSON, max_size=4)
VALUES = Values(codec())


@given(TEXT, st.integers(1, 9), JSON)
def test_records_come_back(run_id: str, seq: int, data: object) -> None:
    record = EventReceived(seq=seq, ts=float(seq), name="e", data=data)
    stored = decode(encode(VALUES.record(run_id, record)))
    assert encode(stored).endswith(b'"type":"event_received"}')
    assert VALUES.records(run_id, [stored]) == [decode(encode(record))]


@given(TEXT, OBJECT, TEXT, TEXT)
def test_objects_and_texts_come_back(run_id: str, data: Mapping[str, object], one: str, two: str) -> None:
    question = OpenQuestion("q", 1.0, "input", data)
    assert VALUES.asked(run_id, VALUES.question(run_id, question)) == question
    info = replace(new_run()[0], run_id=run_id, error=one, input=two, output=one, question=two, fault=two)
    coded = replace(VALUES.summary(run_id, info), fault=VALUES.fault(run_id, two))
    assert (coded.input, coded.output, coded.question) == ("", "", "")
    assert VALUES.row(coded) == info
    schedule = Schedule("s", "g", "* * * * *", 1.0, values=data)
    assert VALUES.scheduled(VALUES.schedule(schedule)) == schedule


@given(NAME, NAME, JSON, TEXT, st.binary(max_size=16), st.binary(max_size=60))
def test_items_and_snapshots_come_back(space: str, key: str, value: Any, text: str, vector: bytes, data: bytes) -> None:
    from orchestrator.json import canonical

    item = Item((space,), key, canonical(value), text or key, vector, 1.0, 2.0, 3.0)
    coded = VALUES.item("memory", item)
    assert (coded.text, coded.vector, coded.size) == ("", b"", item.size)
    assert VALUES.kept("memory", coded) == item
    assert VALUES.folded("r", 3, VALUES.snapshot("r", 3, data)) == data


def test_the_same_value_is_never_the_same_ciphertext() -> None:
    record = event(1, "x")
    texts = [encode(VALUES.record("r", record)) for _ in range(100)]
    assert len(set(texts)) == 100
    clear = set(re.findall(rb'"(\w+)":', texts[0]))
    assert clear == {b"seq", b"ts", b"key_id", b"cipher", b"type"}
