"""Long strings of records, taken out and put back: every byte comes back, and no text is taken for a hole."""

from __future__ import annotations

import json
import time
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from orchestrator import Executor
from orchestrator.errors import StoreError
from orchestrator.kernel.records import EventReceived, decode, encode
from orchestrator.stores.payloads import LEAST, MARK, Assembly, Parted, holes, is_sound, pieces, shown, split
from orchestrator.stores.stored import checksum, rows_of
from orchestrator.values import MAX_RECORD_BYTES
from tests.support.sizes import sized
from tests.web.api import plain

PIECES = st.sampled_from([
    b'"', b"\\", b'\\"', b"\\\\", b"{", b"}", b"~", b"\n", b"~0+40000\n", b'"sha256:' + b"0" * 64 + b'"', b"\xff",
    b"\xc3\xa4", b"\0", b"a" * LEAST, b"a" * (LEAST - 1), b'\\"' * LEAST, b"\\" * LEAST, b'"' * LEAST, b"\x80" * LEAST,
    b'"type":"step_done"}',
])  # fmt: skip


@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=8).map(b"".join)))
@example(b"")
@example(MARK)
@example(MARK + b"\n")
@example(b'"' + b"a" * LEAST)
@example(b'"' + b"a" * LEAST + b"\\")
def test_every_byte_comes_back(data: bytes) -> None:
    stored, payloads = split(data)
    assert b"".join(pieces(stored, payloads)) == data
    assert (stored, dict(payloads)) == (split(data)[0], dict(split(data)[1]))
    assert {hole.digest for hole in holes(stored)} == payloads.keys()
    assert all(is_sound(digest, payload) and len(payload) >= LEAST for digest, payload in payloads.items())
    if len(data) < LEAST and not data.startswith(MARK):
        assert stored is data


# A pair of a text and a count stands for the text so many times, so that examples are shown in a line.
JSON = st.recursive(
    st.none() | st.integers() | st.tuples(st.text(max_size=3), st.sampled_from([1, LEAST // 2, LEAST])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=6,
)


def _value(given: object) -> object:
    if isinstance(given, tuple):
        text, count = given
        return text * count
    if isinstance(given, dict):
        return {name: _value(item) for name, item in given.items()}
    return [_value(item) for item in given] if isinstance(given, list) else given


@given(JSON)
def test_every_record_comes_back_and_the_long_strings_of_it_are_the_payloads(given: object) -> None:
    data = encode(EventReceived(seq=3, ts=1.0, name="e", data=_value(given)))
    stored, payloads = split(data)
    assert b"".join(pieces(stored, payloads)) == data
    literals = {part for part in _literals(json.loads(data)) if len(part) >= LEAST}
    assert set(payloads.values()) == literals
    assert len(stored) <= len(data)
    assert stored.endswith(b',"type":"event_received"}')
    assert stored.startswith(MARK) == bool(literals)
    body = stored.partition(b"\n")[2] if literals else stored
    record = decode(body)  # for people: it is JSON without the first line
    assert (record.seq, record.type) == (3, "event_received")


def _literals(value: object) -> list[bytes]:
    """All strings of a JSON value, keys among them, as records encode them, without their quotes."""
    if isinstance(value, str):
        before, after = encode(EventReceived(seq=1, ts=1.0, name="?")).split(b"?")
        return [encode(EventReceived(seq=1, ts=1.0, name=value))[len(before) : -len(after)]]
    if isinstance(value, dict):
        return [one for key, item in value.items() for one in (*_literals(key), *_literals(item))]
    return [one for item in value for one in _literals(item)] if isinstance(value, list) else []


def test_a_skeleton_is_readable_and_a_text_that_looks_like_one_is_a_text() -> None:
    long = "x" * LEAST
    data = encode(EventReceived(seq=3, ts=1.0, name="e", data={"a": long, "b": [long, "short"]}))
    stored, payloads = split(data)
    digest = sha256(long.encode()).digest()
    name = shown(digest)
    _, body = stored.split(b"\n")
    assert dict(payloads) == {digest: long.encode()}
    assert json.loads(body)["data"] == {"a": name, "b": [name, "short"]}
    assert [(hole.size, hole.digest) for hole in holes(stored)] == [(LEAST, digest)] * 2
    forged = encode(EventReceived(seq=3, ts=1.0, name=stored.decode(), data={"a": name, "b": long}))
    stored, payloads = split(forged)
    assert len(holes(stored)) == 1
    assert b"".join(pieces(stored, payloads)) == forged


@pytest.mark.parametrize(
    "damaged",
    [
        b"~", b"~\0\n", b"~1\n{}", b"~0+4\n{}", b"~-1+4\n{}", b"~9999999999999999+1\n",
        b"~0+5,0+5\nsha256:" + b"0" * 64, b"~0+5\nsha256:" + b"0" * 63, b"~0+5\nsha256:" + b"G" * 64,
        b"~0+6\nsha256:" + b"0" * 64,
    ],
)  # fmt: skip
def test_a_damaged_skeleton_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"places|digest|bytes"):
        pieces(damaged, {bytes(32): b"12345"})


def test_a_missing_payload_is_named() -> None:
    with pytest.raises(KeyError) as caught:
        pieces(b"~0+5\nsha256:" + b"0" * 64, {})
    assert caught.value.args == (bytes(32),)
    assert b"".join(pieces(b"~0+5\nsha256:" + b"0" * 64 + b"}", {bytes(32): b"12345"})) == b"12345}"


@pytest.mark.parametrize(
    ("begin", "piece", "end"),
    [
        (b"{", b'"', b""), (b'{"', b"\\", b""), (b'{"', b"\\", b'"}'), (b'{"', b'\\"', b""), (b'{"', b'\\"', b'"}'),
        (b'{"', b"a", b""), (b"{", b'"a\\', b""), (b"{", b'"a",', b"}"), (b"{", b"\xff\\", b""), (b"~", b"\n", b""),
        (b'{"', b"a" * LEAST + b'","', b'"}'),
    ],
)  # fmt: skip
def test_it_takes_time_in_proportion_to_the_bytes(begin: bytes, piece: bytes, end: bytes) -> None:
    def seconds(size: int) -> float:
        data = begin + piece * (size // len(piece)) + end
        began = time.process_time()
        stored, payloads = split(data)
        assert b"".join(pieces(stored, payloads)) == data
        return time.process_time() - began

    size = sized(1 << 20, 1 << 22)
    few = min(seconds(size // 8) for _ in range(3))
    many = min(seconds(size) for _ in range(3))
    assert many < 8 * 4 * max(few, 0.0005)


def test_the_checksum_of_a_row_is_that_of_the_whole_record() -> None:
    record = EventReceived(seq=3, ts=1.0, name="e", data="x" * LEAST)
    ((seq, crc, stored),), payloads = rows_of("r", [record])
    assert (seq, crc) == (3, checksum("r", 3, encode(record)))
    assert stored != encode(record) == b"".join(pieces(stored, payloads))


def read_parted(record: EventReceived, *, often: Assembly | None = None) -> Parted:
    """A record as it is read when its payloads were repeated a lot before it."""
    stored, payloads = split(encode(record))
    many = often or Assembly()
    while isinstance(found := many.record(stored, payloads), bytes):
        assert found == encode(record)
    assert b"".join(found.pieces) == encode(record)
    return found


def test_a_payload_is_in_memory_once_however_often_records_have_it() -> None:
    long, other = "x\n\U0001f600" * LEAST, "y" * LEAST
    record = EventReceived(
        seq=3, ts=1.0, name="e", data={"a": [long] * 3, long: {"b": other}, "c": "sha256:" + "0" * 64}
    )
    often = Assembly()
    texts = []
    for _ in range(2):
        found = read_parted(record, often=often)
        again = decode(found.json, found.texts)
        assert again == record
        assert isinstance(again, EventReceived)
        assert isinstance(again.data, dict)
        assert list(again.data) == ["a", long, "c"]
        texts += [*again.data["a"], next(key for key in again.data if len(key) > 100)]
    assert len(set(map(id, texts))) == 1


def test_a_text_that_names_a_payload_is_a_text() -> None:
    long = "x" * LEAST
    (name,) = read_parted(EventReceived(seq=3, ts=1.0, name="e", data=long)).texts
    quoted = EventReceived(seq=3, ts=1.0, name="e", data=[long, name, shown(sha256(long.encode()).digest())])
    found = read_parted(quoted)
    assert decode(found.json, found.texts) == quoted


def named_often(payload: str, times: int) -> tuple[bytes, bytes]:
    """A skeleton that has a payload so many times, and its digest: it is never written as a whole."""
    digest = sha256(payload.encode()).digest()
    stored, _ = split(encode(EventReceived(seq=1, ts=1.0, name="event", data=[payload])))
    line, body = stored.split(b"\n")
    first, size = map(int, line[1:].split(b"+"))
    hole = body[first - 1 : first + 72]
    places = b",".join(b"%d+%d" % (first + at * (len(hole) + 1), size) for at in range(times))
    return b"~" + places + b"\n" + body.replace(hole, b",".join([hole] * times)), digest


def test_a_record_that_would_be_too_large_is_refused_before_it_is_put_together() -> None:
    payload = "x" * (1 << 20)
    least = MAX_RECORD_BYTES // len(payload)
    stored, digest = named_often(payload, least - 1)
    assert sum(map(len, pieces(stored, {digest: payload.encode()}))) <= MAX_RECORD_BYTES
    stored, digest = named_often(payload, least)
    with pytest.raises(ValueError, match=r"it has 603,\d{3},\d{3} bytes .* the limit for a record is 603,979,776"):
        pieces(stored, {digest: payload.encode()})


def _bound(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Set the bytes of the largest record: the real one takes a gigabyte."""
    for module in ("shared", "stored", "memory"):
        monkeypatch.setattr(f"orchestrator.stores.{module}.MAX_RECORD_BYTES", most)


def test_a_record_that_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    _bound(monkeypatch, 1 << 20)
    record = EventReceived(seq=3, ts=1.0, name="e", data=["x" * (1 << 18)] * 3)
    assert len(rows_of("r", [record])[0]) == 1
    with pytest.raises(StoreError, match=r"run 'r': record 3 \(event_received\) has .* and the limit is 1,048,576"):
        rows_of("r", [structs.replace(record, data=["x" * (1 << 18)] * 4)])


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_every_store_refuses_a_record_that_could_not_be_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bound(monkeypatch, 1 << 20)
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[plain]) as executor:
        await executor.start(plain, "x" * 1_000, run_id="a")
        with pytest.raises(StoreError, match=r"run 'b': record 1 \(run_started\) has .* and the limit is 1,048,576"):
            await executor.start(plain, "x" * (1 << 20), run_id="b")
        assert [info.run_id for info in (await executor.runs()).runs] == ["a"]
