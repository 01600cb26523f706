"""An audit names who approved what, its file shows every change, and a deleted run leaves a proof and no content."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, node, tool
from orchestrator.errors import RunUnknown, StoreTooNew
from orchestrator.executor import Run, Seal, audit_check
from orchestrator.executor.audit_check import WrongLine, check
from orchestrator.executor.deletion import begun_key
from orchestrator.json import canonical, digest
from orchestrator.nodes import Confirm, Execute
from orchestrator.stores import open_store
from orchestrator.stores.codec import AESGCMCodec
from orchestrator.stores.copying import copy_store
from orchestrator.stores.items import AREAS, Item
from orchestrator.stores.requests import NewRun
from orchestrator.stores.stored import checksum
from orchestrator.tools.builtin.files import Files
from orchestrator.tools.result import ToolResult
from tests.sizes import code_lines
from tests.support.postgres import PostgresDatabase

pytestmark = pytest.mark.anyio
SECRET = "xylophone-4711-quagmire"
KEY = b"k" * 32
PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


class State(BaseModel):
    word: str = ""
    tool: str = "pay"
    args: dict[str, Any] = {"amount": 10}
    result: ToolResult | None = None


@tool(risk="dangerous", effect="irreversible")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {SECRET}"


payment = Graph(
    name="payment",
    state=State,
    nodes={"confirm": Confirm(tool="tool", args="args"), "call": Execute(on_failure="observe")},
    edges="START -> confirm -> call : approved\nconfirm -> END : denied\ncall -> END : done\ncall -> END : finished",
    input="word",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    database: PostgresDatabase = request.getfixturevalue("postgres")
    return database.url


def opened(url: str, **more: Any) -> Executor:
    return Executor(url, graphs=[payment], tools=[pay], seal=Seal(KEY, "place"), **more)


async def paid(executor: Executor, run_id: str) -> Run:
    run = await executor.start(payment, SECRET, run_id=run_id, by="ann")
    (question,) = run.waiting
    return await executor.answer(run_id, question.id, Approve(), by="bob", digest=question.digest)


async def lines_of(executor: Executor, *runs: str, **more: Any) -> list[bytes]:
    return [line.encode() + b"\n" async for line in executor.audit(runs or None, **more)]


@pytest.fixture
async def audit(tmp_path: Path) -> list[bytes]:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await paid(executor, "r")
        return await lines_of(executor)


async def test_an_audit_says_who_approved_which_call_as_shown_by_which_digest_and_has_no_content(url: str) -> None:
    async with opened(url) as executor:
        run = await paid(executor, "r")
        assert run.status == "completed"
        lines = await lines_of(executor)
        found = {one["type"]: one for one in map(json.loads, lines)}
        whole = await lines_of(executor, content=True)
    asked, answered, called = found["asked"], found["answered"], found["effect_intended"]
    assert (asked["kind"], asked["tool"], asked["risk"]) == ("approval", "pay", "dangerous")
    assert (answered["by"], answered["decision"], answered["shown"]) == ("bob", "approve", asked["shown"])
    assert (called["name"], called["risk"], called["question"]) == ("pay", "dangerous", asked["question"])
    assert found["run_started"]["by"] == "ann"
    assert len(found["effect_settled"]["result_digest"]) == 32
    assert SECRET.encode() not in b"".join(lines)
    checked = check(lines, KEY)
    assert (checked["records"], checked["sealed"]) == (len(lines) - 3, len(lines) - 3)
    assert SECRET.encode() in b"".join(whole)
    assert check(whole, KEY)["runs"] == checked["runs"]


def changed(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"decision":"approve"', b'"decision":"deny"') for line in lines]


def at(lines: list[bytes], kind: str) -> int:
    return next(number for number, line in enumerate(lines) if json.loads(line)["type"] == kind)


def removed(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if json.loads(line)["type"] != "answered"]


def moved(lines: list[bytes]) -> list[bytes]:
    here = at(lines, "answered")
    return [*lines[:here], lines[here + 1], lines[here], *lines[here + 2 :]]


def cut(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def torn(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1][:-9]]


def added(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[-1].replace(b'{"n":%d' % len(lines), b'{"n":%d' % (len(lines) + 1))]


def overridden(lines: list[bytes]) -> list[bytes]:
    """The last of two fields with one name counts in most readers of JSON."""
    here = at(lines, "answered")
    return [*lines[:here], lines[here][:-2] + b',"decision":"deny"}\n', *lines[here + 1 :]]


def summed_again(lines: list[bytes]) -> list[bytes]:
    """The lines with right sums, as a program without the key can make them."""
    total, found = b"", []
    for number, line in enumerate(lines, 1):
        fields = json.loads(line)
        mac = fields["mac"]
        body = json.dumps(
            {**fields, "n": number, "sum": 0, "mac": 0}, separators=(",", ":"), ensure_ascii=False
        ).partition(',"sum":')[0]
        total = hashlib.sha256(total + body.encode()).digest()
        found.append(f'{body},"sum":"{total.hex()}","mac":"{mac}"}}\n'.encode())
    return found


def forged(lines: list[bytes]) -> list[bytes]:
    return summed_again(changed(lines))


def shortened(lines: list[bytes]) -> list[bytes]:
    return summed_again(removed(lines))


TAMPERED = {
    changed: "answered: it was changed",
    removed: "answered: line {next} is here, line {here} was removed",
    moved: "answered: line {next} is here, line {here} was moved",
    cut: "end: the last line is missing",
    torn: "end: it is no line of an audit",
    added: "after: it was added after the last line",
    overridden: "answered: it was changed",
    forged: "answered: its seal was forged",
    shortened: "answered: its seal was forged",
}


@pytest.mark.parametrize(("tamper", "wanted"), TAMPERED.items(), ids=[one.__name__ for one in TAMPERED])
async def test_the_first_wrong_line_of_a_file_is_named(
    audit: list[bytes], tmp_path: Path, tamper: Callable[[list[bytes]], list[bytes]], wanted: str
) -> None:
    kind, _, words = wanted.partition(": ")
    here = (len(audit) if kind == "after" else at(audit, kind)) + 1
    said = f"line {here}: {words.format(here=here, next=here + 1)}"
    with pytest.raises(WrongLine, match=said):
        check(tamper(audit), KEY)
    file, key = tmp_path / "audit.jsonl", tmp_path / "key"
    file.write_bytes(b"".join(tamper(audit)))
    key.write_bytes(KEY)
    done = await anyio.run_process([sys.executable, "-I", "-S", audit_check.__file__, file, key], check=False)
    assert (done.returncode, said in done.stderr.decode()) == (1, True)


async def test_a_file_of_another_version_is_refused(audit: list[bytes]) -> None:
    other = [audit[0].replace(b'"version":1', b'"version":2'), *audit[1:]]
    for key in (KEY, None):
        with pytest.raises(WrongLine, match="line 1: the file is of version 2, and this program checks version 1"):
            check(other, key)


async def test_a_file_that_was_exported_without_a_key_is_not_called_forged(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[payment], tools=[pay]) as executor:
        await executor.start(payment, SECRET, run_id="r")
        lines = await lines_of(executor)
    assert check(lines)["records"]
    with pytest.raises(WrongLine, match="line 1: it has no seal: see --no-seals"):
        check(lines, KEY)


async def test_a_forged_or_missing_seal_of_a_record_is_seen(audit: list[bytes], tmp_path: Path) -> None:
    here = at(audit, "answered")
    seal = json.loads(audit[here])["seal"]
    other = [line.replace(seal.encode(), b"0" * 32) for line in audit]
    with pytest.raises(WrongLine, match=f"line {here + 1}: it was changed"):
        check(other, KEY)
    async with Executor(f"sqlite:///{tmp_path}/runs.db", seal=Seal(b"o" * 32, "place")) as executor:
        lines = await lines_of(executor)
    with pytest.raises(WrongLine, match="line 3: the seal of record 1 of run 'r' is not valid"):
        check(lines, b"o" * 32)


def test_the_program_in_the_documentation_is_the_one_that_the_library_uses_and_has_60_lines() -> None:
    program = Path(audit_check.__file__).read_text()
    assert program in PAGE.read_text()
    assert len(code_lines(program)) <= 60


@pytest.mark.parametrize("line", [b"", b"[]\n", b"null\n", b'{"n":1}\n', b'{"n":"x"}\n', b"\xff\n", b"[" * 99999])
def test_no_line_of_a_stranger_breaks_the_check(line: bytes) -> None:
    with pytest.raises(WrongLine, match="line 1"):
        check([line], KEY)


# -- deletion ----------------------------------------------------------------------------------------------------


class Work(BaseModel):
    word: str = ""
    found: str = ""


@node(cache=3600)
async def search(state: Work) -> Update:
    return {"found": f"found {state.word}"}


@node(effect="idempotent")
async def write(state: Work, ctx: Context[Any]) -> Update:
    await ctx.memory.put(("notes",), "word", {"text": state.word})
    await ctx.memory.put(("notes",), "shared", {"text": state.word})
    await ctx.tool("create_file", path="note.txt", text=state.word)
    await ctx.tool("replace_in_file", path="note.txt", old=state.word, new="gone")
    return {}


working = Graph(
    name="working",
    state=Work,
    nodes={"search": search, "write": write},
    edges="START -> search -> write -> END",
    input="word",
    output="found",
)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def places_of(folder: Path, word: str) -> set[str]:
    return {name for name, data in bytes_of(folder).items() if word.encode() in data}


async def test_deletion_reaches_every_place_that_a_run_wrote_to(tmp_path: Path) -> None:
    root, archive = tmp_path / "root", tmp_path / "archive"
    root.mkdir()
    files = Files(root)
    async with Executor(
        f"sqlite:///{tmp_path}/runs.db",
        graphs=[working],
        tools=[files],
        seal=Seal(KEY, "place"),
        archive=archive.as_uri(),
    ) as executor:
        await executor.start(working, SECRET, run_id="r", labels={"team": SECRET}, approve="dangerous")
        await executor.notes.write("r", text=SECRET)
        await executor.fork("r", at=1, run_id="copy")
        await executor.replay("r")
        assert (await executor.runs(search=SECRET)).runs
        assert [line async for line in executor.export("r", to="/home/ann/runs.jsonl", by="ann")]
        await executor.archive(run_ids=["r"], older_than=None)
        await executor.memory.put(("notes",), "shared", {"text": "of another run"})
        before = places_of(tmp_path, SECRET)
        assert {name.partition("/")[0] for name in before if not name.startswith("runs.db")} == {"root", "archive"}
        deleted = await executor.delete(
            "r", forks=True, memory=True, also=[files.forget_edits], by="eve", reason="asked by the person"
        )
        assert {"r", "copy"} < {*deleted}
        proofs = [one["proof"] for one in map(json.loads, await lines_of(executor)) if one["type"] == "deleted"]
        await executor.prune(keep=0)
        assert await executor.memory.get(("notes",), "shared") is not None
    assert places_of(tmp_path, SECRET) == set()
    (proof,) = (one for one in proofs if one["run_id"] == "r")
    assert (proof["by"], proof["rule"]) == ("eve", "delete asked by the person")
    assert [one["to"] for one in proof["exports"]] == ["/home/ann/runs.jsonl"]
    removed = {name: sum(one["removed"][name] for one in proofs) for name in ("results", "memory", "also")}
    assert removed == {"results": 1, "memory": 1, "also": 2}


async def test_the_deletion_of_a_fork_leaves_what_its_parent_wrote(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    files = Files(tmp_path / "root")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[working], tools=[files]) as executor:
        run = await executor.start(working, SECRET, run_id="r", approve="dangerous")
        await executor.fork("r", run_id="copy", at=run.seq - 1)
        await executor.delete("copy", memory=True, also=[files.forget_edits])
        (proof,) = (one["proof"] for one in map(json.loads, await lines_of(executor)) if one["type"] == "deleted")
    assert proof["removed"] == {"results": 0, "memory": 0, "also": 0}


def proofs_in(lines: list[bytes]) -> dict[str, dict[str, Any]]:
    return {one["proof"]["run_id"]: one["proof"] for one in map(json.loads, lines) if one["type"] == "deleted"}


async def test_forks_of_forks_that_were_deleted_are_deleted_or_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    async with Executor(url, graphs=[working], tools=[Files(tmp_path / "root")], seal=Seal(KEY, "place")) as executor:
        run = await executor.start(working, SECRET, run_id="r", approve="dangerous")
        for parent, copy in (("r", "f1"), ("f1", "f2"), ("f2", "f3")):
            await executor.fork(parent, run_id=copy, at=run.seq - 1)
        files = {name: [line async for line in executor.export(name)] for name in ("r", "f1")}
        await executor.delete("f2")
        for _ in range(2):  # then there are two proofs
            await executor.delete("f1")
            await executor.import_(files["f1"])
        await executor.delete("f1")
        await executor.delete("r")
        proofs = proofs_in(await lines_of(executor))
        assert [proofs[name]["related"] for name in ("f2", "f1", "r")] == [["f3"]] * 3
        await executor.import_(files["r"])
        await executor.start(working, "other", run_id="f1", approve="dangerous")  # no fork of that run
        await executor.fork("f1", run_id="f1copy", at=1)
        assert await executor.delete("r", forks=True) == ["r", "f3"]
        assert {one.run_id for one in (await executor.runs()).runs} == {"f1", "f1copy"}
        assert check(await lines_of(executor), KEY)["sealed_deletions"] == 7


async def test_forks_are_deleted_without_the_runs_that_a_run_called(tmp_path: Path) -> None:
    inner = Graph(name="inner", state=Work, nodes={"search": search}, edges="START -> search -> END", input="word",
                  output="found")  # fmt: skip

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"found": str((await ctx.tool("inner_tool", word="a")).output)}

    outer = Graph(name="outer", state=Work, nodes={"call": call}, edges="START -> call -> END", input="word",
                  output="found")  # fmt: skip
    tools = [inner.as_tool("inner_tool", "x")]
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[outer], tools=tools) as executor:
        run = await executor.start(outer, "x", run_id="r")
        await executor.fork("r", run_id="copy", at=run.seq - 1)
        children = {one.run_id for one in (await executor.runs()).runs} - {"r", "copy"}
        assert await executor.delete("r", forks=True, children=False) == ["r", "copy"]
        assert {one.run_id for one in (await executor.runs()).runs} == children != set()


async def test_all_exports_of_a_run_are_named_or_counted_and_forgotten_with_it(url: str) -> None:
    async with opened(url) as executor:
        await paid(executor, "r")
        await paid(executor, "other")
        for number in range(505):
            assert [line async for line in executor.export("r", to=f"/home/ann/{number}.jsonl", by="ann")]
        assert [line async for line in executor.export("other", to="/home/ann/other.jsonl", by="ann")]
        named = next(one for one in map(json.loads, await lines_of(executor, "r")) if one["type"] == "run")
        await executor.delete("r")
        proof = proofs_in(await lines_of(executor))["r"]
        for found in (named, proof):
            assert [one["to"] for one in found["exports"]] == [f"/home/ann/{number}.jsonl" for number in range(5, 505)]
            assert found["more_exports"] == 5
        (left,) = await executor.store.items("audit", ("exports",))
        assert json.loads(left.data)["to"] == "/home/ann/other.jsonl"


NO_NOTES = (
    "[]", "null", '{"to":"a"}', '{"to":"a","by":"b","at":"z"}', '{"to":"a","by":"b","at":NaN}',
    '{"to":"a","by":"b","at":1e999}', '{"to":"a","by":"b","at":1' + "0" * 400 + "}", '{"to":["a"],"by":"b","at":1}',
)  # fmt: skip
NO_JSON = ("{", '{"to":"a","by":"b","at":1' + "0" * 5000 + "}", "[" * 5000 + "]" * 5000)


async def test_no_item_of_a_stranger_prevents_an_audit_or_a_deletion(url: str) -> None:
    async with opened(url) as executor:
        await paid(executor, "r")
        await paid(executor, "old")
        assert [line async for line in executor.export("r", to="/home/ann/r.jsonl", by="ann")]
        strange = canonical({"to": "\\ud800" + "x" * 9999, "by": "b", "at": 9e9}).replace("\\\\", "\\")
        for number, data in enumerate((*NO_NOTES, *NO_JSON, strange)):
            for name in ("r", "old"):
                await executor.store.put_item("audit", Item(("exports", digest(name)), f"{number}", data))
        named = next(one for one in map(json.loads, await lines_of(executor, "r")) if one["type"] == "run")
        await executor.delete("r")
        await executor.prune(keep=0)
        proof = proofs_in(await lines_of(executor))["r"]
        for found in (named, proof):
            assert [one["to"][:20] for one in found["exports"]] == ["/home/ann/r.jsonl", "\ufffd" + "x" * 19]
            assert (found["more_exports"], len(found["exports"][1]["to"])) == (len(NO_NOTES), 4096)
        assert await executor.store.item_namespaces("audit", ("exports",)) == []
        assert check(await lines_of(executor), KEY)["sealed_deletions"] == 2


async def test_no_record_of_a_stranger_prevents_a_deletion(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    async with Executor(
        f"sqlite:///{tmp_path}/runs.db", graphs=[working], tools=[Files(tmp_path / "root")]
    ) as executor:
        await executor.start(working, SECRET, run_id="r", approve="dangerous")
        records = await executor.store.read("r")
        (put,) = (one for one in records if getattr(one, "request", {}).get("key") == "word")
        info = await executor.store.info("r")
        requests: list[dict[str, Any]] = [
            {}, {"key": ["a"]}, {"namespace": "a", "key": "k", "value": 1}, {"namespace": [], "key": {}, "value": 1},
            {"namespace": [["a"]], "key": "k", "value": 1}, {"namespace": ["a\x00"], "key": "k", "value": 1},
        ]  # fmt: skip
        strange = [
            structs.replace(put, seq=number, name=name, request=request)
            for number, (name, request) in enumerate(
                itertools.product(("memory.put", "cache.put"), requests), len(records) + 1
            )
        ]
        head = len(records) + len(strange)
        await executor.store.create(NewRun(replace(info, run_id="s", head=head), [*records, *strange]))
        assert await executor.delete("s", memory=True) == ["s"]
        assert await executor.memory.get(("notes",), "word") is None


async def test_text_that_cannot_be_stored_is_replaced_in_proofs(url: str) -> None:
    async with opened(url) as executor:
        await paid(executor, "r")
        assert [line async for line in executor.export("r", to="/home/\udcff/r.jsonl", by="u\udcff")]
        await executor.delete("r", by="u\udcff", reason="bad\udcff")
        proof = proofs_in(await lines_of(executor))["r"]
    assert (proof["by"], proof["rule"]) == ("u\ufffd", "delete bad\ufffd")
    assert (proof["exports"][0]["to"], proof["exports"][0]["by"]) == ("/home/\ufffd/r.jsonl", "u\ufffd")


async def test_a_run_with_a_record_of_a_newer_version_is_not_deleted_and_others_are(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        for name in ("older", "r", "newer"):
            await paid(executor, name)
    with sqlite3.connect(file) as connection:
        (number,) = connection.execute("SELECT id FROM runs WHERE run_id = 'r'").fetchone()
        data = b'{"seq":5,"ts":5.0,"v":2,"novelty":1,"type":"novelty"}'
        connection.execute(
            "UPDATE records SET data = ?, crc = ? WHERE id = ?", (data, checksum("r", 5, data), number << 32 | 5)
        )
    connection.close()
    async with opened(f"sqlite:///{file}") as executor:
        with pytest.raises(StoreTooNew, match="run 'r': record 5 was written by a newer version; update the library"):
            await executor.delete("r")
        pruned = await executor.prune(keep=0)
        assert (pruned.runs, {*pruned.skipped}) == (("newer", "older"), {"r"})
        assert [one.run_id for one in (await executor.runs()).runs] == ["r"]
        assert proofs_in(await lines_of(executor, "newer", "older")).keys() == {"newer", "older"}


async def test_what_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    files = Files(tmp_path / "root")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[working], tools=[files]) as executor:
        await executor.start(working, SECRET, run_id="r", approve="dangerous")
        await executor.fork("r", run_id="copy", at=1)
        assert await executor.delete("r") == ["r"]
        assert await executor.memory.get(("notes",), "word") is not None
        assert (await executor.load("copy")).run_id == "copy"
        (proof,) = (one["proof"] for one in map(json.loads, await lines_of(executor)) if one["type"] == "deleted")
    assert proof["related"] == ["copy"]
    assert any(name.startswith("root/.orchestrator/undo") for name in places_of(tmp_path, SECRET))


async def test_a_deleted_run_leaves_a_proof_that_fits_an_earlier_audit(url: str) -> None:
    async with opened(url) as executor:
        await paid(executor, "r")
        await paid(executor, "kept")
        before = await lines_of(executor)
        await executor.prune(keep=1, by="cron")
        after = await lines_of(executor)
        earlier, later = check(before, KEY), check(after, KEY)
        (proof,) = later["deleted"]
        gone = proof["run_id"]
        assert (proof["head"], proof["chain"], []) == earlier["runs"][gone]
        assert (proof["by"], proof["rule"]) == (
            "cron",
            'prune {"keep":1,"status":"cancelled,completed,exhausted,failed"}',
        )
        assert proof["last_seal"] == next(
            one["seal"] for one in reversed([*map(json.loads, before)]) if "seq" in one and one["seq"] == proof["head"]
        )
        assert SECRET not in canonical(proof)
        assert await executor.audit_faults(earlier["runs"], earlier["deleted"]) == []
        assert await executor.audit_faults(later["runs"], later["deleted"]) == []
        only = [json.loads(line)["type"] for line in await lines_of(executor, gone)]
        assert only == ["audit", "deleted", "end"]
        with pytest.raises(RunUnknown):
            await lines_of(executor, "nosuch")
        copy = open_store("memory://")
        await copy_store(executor.store, copy)
        assert len(await copy.items("audit", ("deletions",))) == 1
        # another program deletes a run, and the proof, directly in the store
        for item in await executor.store.items("audit"):
            await executor.store.delete_item("audit", item.namespace, item.key)
        await executor.store.delete("kept")
        assert sorted(await executor.audit_faults(earlier["runs"], later["deleted"])) == sorted(
            [
                f"run {gone!r}: the proof of its deletion is missing",
                *(
                    f"run {one!r}: it is not in the store, and there is no proof of its deletion"
                    for one in earlier["runs"]
                ),
            ]
        )


async def test_a_proof_of_a_deletion_that_did_not_happen_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "r")
        await executor.delete("r")
        (item,) = await executor.store.items("audit")
    file.unlink()
    shutil.rmtree(tmp_path / "runs.db-wal", ignore_errors=True)
    async with opened(f"sqlite:///{file}") as executor:
        run = await executor.start(payment, SECRET, run_id="r")
        info = await executor.store.info(run.run_id)
        data = json.loads(item.data) | {"created": info.created}
        key = begun_key("r", info.created)  # as if the process had been killed before the run was deleted
        await executor.store.put_item("audit", type(item)(item.namespace, key, canonical(data)))
        assert [json.loads(line)["type"] for line in await lines_of(executor)][-1] == "end"
        assert not [line for line in await lines_of(executor) if b'"deleted","proof"' in line]
        await executor.delete("r", by="ann")  # replaces it
        assert [one["by"] for one in check(await lines_of(executor), KEY)["deleted"]] == ["ann"]


async def test_each_deletion_of_a_run_that_is_imported_again_has_a_proof(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await paid(executor, "r")
        first = check(await lines_of(executor), KEY)
        exported = [line async for line in executor.export("r")]
        for by in ("ann", "bob"):
            await executor.delete("r", by=by)
            await executor.import_(exported)
        found = check(await lines_of(executor), KEY)
        assert sorted(one["by"] for one in found["deleted"]) == ["ann", "bob"]
        for file in (first, found):
            assert await executor.audit_faults(file["runs"], file["deleted"]) == []


async def test_the_proof_of_a_process_that_was_killed_right_after_the_deletion_stays(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        run = await paid(executor, "r")
        created = (await executor.store.info(run.run_id)).created
        exported = [line async for line in executor.export("r")]
        await executor.delete("r", by="ann")
        (item,) = await executor.store.items("audit", ("deletions",))  # back under the key that it had before
        await executor.store.put_item("audit", type(item)(item.namespace, begun_key("r", created), item.data))
        await executor.store.delete_item("audit", item.namespace, item.key)
        assert [one["by"] for one in check(await lines_of(executor), KEY)["deleted"]] == ["ann"]
        await executor.import_(exported)
        await executor.delete("r", by="bob")
        assert sorted(one["by"] for one in check(await lines_of(executor), KEY)["deleted"]) == ["ann", "bob"]


async def test_deletions_without_a_seal_are_counted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with opened(url) as executor:
        await paid(executor, "r")
        await paid(executor, "s")
        await executor.delete("r")
    async with Executor(url) as executor:
        await executor.delete("s")
    async with opened(url) as executor:
        found = check(await lines_of(executor), KEY)
    assert (len(found["deleted"]), found["sealed_deletions"]) == (2, 1)


async def test_a_run_that_was_deleted_and_began_again_fits_an_earlier_audit(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await paid(executor, "r")
        first = check(await lines_of(executor), KEY)
        await executor.delete("r")
        await executor.start(payment, SECRET, run_id="r")
        second = check(await lines_of(executor), KEY)
        for file in (first, second):
            assert await executor.audit_faults(file["runs"], file["deleted"]) == []
        # the first deletion proves nothing about the second run
        await executor.store.delete("r")
        assert await executor.audit_faults(second["runs"], second["deleted"]) == [
            "run 'r': it is not in the store, and there is no proof of its deletion"
        ]
        await executor.start(payment, SECRET, run_id="r")
        await executor.delete("r")
        await executor.start(payment, SECRET, run_id="r")
        assert await executor.audit_faults(first["runs"], first["deleted"]) == []


async def test_a_proof_without_a_valid_seal_proves_no_deletion(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await paid(executor, "r")
        file = check(await lines_of(executor), KEY)
        await executor.delete("r")
        (item,) = await executor.store.items("audit")
        for seal in ("", "0" * 64):
            forged = canonical({**json.loads(item.data), "by": "ann", "seal": seal})
            await executor.store.put_item("audit", type(item)(item.namespace, item.key, forged))
            assert await executor.audit_faults(file["runs"], file["deleted"]) == [
                "run 'r': it is not in the store, and the proof of its deletion has no valid seal"
            ]
        for data in ("null", "[1]", "{}", '{"run_id": 1}'):
            await executor.store.put_item("audit", type(item)(item.namespace, item.key, data))
            assert [json.loads(line)["type"] for line in await lines_of(executor)] == ["audit", "end"]


@pytest.mark.parametrize("since", [None, timedelta(0)])
async def test_the_proof_of_a_run_that_was_imported_again_proves_nothing_about_its_second_deletion(
    tmp_path: Path, since: timedelta | None
) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await paid(executor, "r")
        exported = [line async for line in executor.export("r")]
        await executor.delete("r")
        await executor.import_(exported)
        found = check(await lines_of(executor, "r", since=since), KEY)
        assert (len(found["deleted"]), len(found["runs"]["r"][2])) == (since is None, 1)
        assert await executor.audit_faults(found["runs"], found["deleted"]) == []
        await executor.store.delete("r")
        assert await executor.audit_faults(found["runs"], found["deleted"]) == [
            "run 'r': it is not in the store, and there is no proof of its deletion"
        ]
        await executor.import_(exported)
        await executor.delete("r")
        assert await executor.audit_faults(found["runs"], found["deleted"]) == []


async def test_a_run_that_is_deleted_while_the_file_is_written_is_proved_by_the_file(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await executor.start(payment, SECRET, run_id="r")
        lines: list[bytes] = []
        async for line in executor.audit():
            lines.append(line.encode() + b"\n")
            if json.loads(line)["type"] == "run":
                await executor.cancel("r")
                await executor.delete("r")
        found = check(lines, KEY)
        assert found["stopped"] == {"r": "it was deleted while the file was written"}
        assert await executor.audit_faults(found["runs"], found["deleted"]) == []


def overwrite(file: Path, seq: int, **fields: Any) -> None:
    """Write other fields into a record of each run, with a checksum, as every program can that can write the file."""
    with closing(sqlite3.connect(file)) as connection, connection:
        query = "SELECT records.id, run_id, data FROM records JOIN runs ON runs.id = records.id >> 32"
        for key, run_id, data in connection.execute(f"{query} WHERE records.id & 4294967295 = ?", (seq,)).fetchall():
            other = json.dumps({**json.loads(data), **fields}).replace("Infinity", "1e999").encode() if fields else b"x"
            crc = checksum(run_id, seq, other)
            connection.execute("UPDATE records SET crc = ?, data = ? WHERE id = ?", (crc, other, key))


UNREADABLE: dict[str, tuple[int, dict[str, Any], str]] = {
    "damaged": (4, {}, "record 4 is damaged"),
    "damaged from the beginning": (1, {}, "record 1 is damaged"),
    "of a newer version": (4, {"v": 99, "type": "unheard_of"}, "record 4 was written by a newer version"),
    "with an infinite number": (1, {"values": {"word": float("inf")}}, "record 1 cannot be written as JSON"),
}


@pytest.mark.parametrize(("seq", "fields", "why"), UNREADABLE.values(), ids=[*UNREADABLE])
async def test_a_run_that_cannot_be_read_is_named_and_ends_neither_an_audit_nor_its_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seq: int, fields: dict[str, Any], why: str
) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "r")
        before = check(await lines_of(executor), KEY)
    overwrite(file, seq, **fields)
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "whole")
        lines = await lines_of(executor)
        found = check(lines, KEY)
        assert why in found["stopped"]["r"]
        assert "run r: not all of its records are in the audit" in caplog.text
        assert [*found["stopped"]] == ["r"]
        assert found["runs"].keys() == {"r", "whole"}
        assert found["runs"]["r"][0] < seq
        if "newer" not in why:
            assert found["runs"]["r"][0] == seq - 1
            assert await executor.audit_faults(found["runs"], []) == []
        (fault,) = await executor.audit_faults(before["runs"], [])
        assert why in fault or "are others than in the file" in fault
        # another program deletes it directly in the store
        await executor.store.delete("r")
        assert await executor.audit_faults(found["runs"], []) == [
            "run 'r': it is not in the store, and there is no proof of its deletion"
        ]


@pytest.mark.parametrize(("seq", "fields"), [UNREADABLE[one][:2] for one in UNREADABLE if "newer" not in one])
async def test_the_proof_that_an_unreadable_run_was_deleted_fits_its_audit(
    tmp_path: Path, seq: int, fields: dict[str, Any]
) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "r")
    overwrite(file, seq, **fields)
    async with opened(f"sqlite:///{file}") as executor:
        found = check(await lines_of(executor), KEY)
        assert await executor.delete("r") == ["r"]
        assert await executor.audit_faults(found["runs"], found["deleted"]) == []


async def test_an_archived_run_without_its_archive_ends_no_audit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with opened(url, archive=(tmp_path / "archive").as_uri()) as executor:
        await paid(executor, "r")
        await executor.archive(run_ids=["r"], older_than=None)
        whole = check(await lines_of(executor), KEY)
        assert not whole["stopped"]
    async with opened(url) as executor:
        await paid(executor, "here")
        found = check(await lines_of(executor), KEY)
        assert "give that archive" in found["stopped"]["r"]
        assert {run_id: head > 0 for run_id, (head, *_) in found["runs"].items()} == {"r": False, "here": True}
        (fault,) = await executor.audit_faults(whole["runs"], [])
        assert "give that archive" in fault


@pytest.mark.parametrize("head", [0, 3])
async def test_records_that_a_damaged_row_hides_are_missed(tmp_path: Path, head: int) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "r")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE runs SET head = ?", (head,))
    async with opened(f"sqlite:///{file}") as executor:
        found = check(await lines_of(executor), KEY)
    assert f"record {head + 1} is damaged (the run's row says that {head} is the last one)" in found["stopped"]["r"]
    assert found["runs"]["r"][0] == head


async def test_records_that_are_written_during_an_audit_are_not_in_it(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        run = await executor.start(payment, SECRET, run_id="r")
        lines: list[bytes] = []
        async for line in executor.audit():
            lines.append(line.encode() + b"\n")
            if json.loads(line)["type"] == "run":
                await executor.cancel("r")
        found = check(lines, KEY)
        assert (found["runs"]["r"][0], found["stopped"]) == (run.seq, {})
        assert await executor.audit_faults(found["runs"], found["deleted"]) == []


async def test_a_run_whose_row_is_damaged_is_named_in_the_audit(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "r")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE runs SET head = 'many'")
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "whole")
        for names in ((), ("r", "whole")):
            found = check(await lines_of(executor, *names), KEY)
            assert "its row in the list of runs is damaged" in found["stopped"]["r"]
            assert (found["runs"]["r"][0], found["runs"].keys()) == (0, {"r", "whole"})


PROOF = {"run_id": "r", "created": 1.0, "at": 2.0, "head": 3, "chain": "", "seal": ""}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({**PROOF, "by": float("nan")}),
        json.dumps({**PROOF, "created": float("-inf")}),
        json.dumps(PROOF).replace("2.0", "1e999"),
        json.dumps({**PROOF, "by": "\ud800"}),
        json.dumps({**PROOF, "run_id": "\ud800"}),
        json.dumps(PROOF)[:-1] + ',"more":' + "[" * 50_000 + "]" * 50_000 + "}",
        json.dumps(PROOF)[:-1] + ',"more":' + "[" * 500 + "]" * 500 + "}",
        json.dumps(PROOF).replace("3", "9" * 5000),
        "null",
    ],
    ids=["nan", "infinity", "too_large", "surrogate", "id", "too_deep", "deep", "long", "null"],
)
async def test_what_is_no_proof_of_a_deletion_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: str
) -> None:
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await paid(executor, "r")
        await executor.delete("r")
        await executor.store.put_item("audit", Item(("deletions",), "strange", data))
        found = check(await lines_of(executor), KEY)
        assert [one["run_id"] for one in found["deleted"]] == ["r"]
        assert await executor.audit_faults(found["runs"], found["deleted"]) == []
    is_json = data.count("[") < 1000 and "9" * 5000 not in data  # a store leaves out other items itself
    assert caplog.text.count("no proof of a deletion and is left out: strange") == (2 if is_json else 0)


async def test_a_run_whose_row_is_damaged_is_deleted_with_a_proof(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with opened(f"sqlite:///{file}") as executor:
        await paid(executor, "r")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE runs SET labels = '{bad'")
    connection.close()
    async with opened(f"sqlite:///{file}") as executor:
        assert await executor.delete("r") == ["r"]
        (proof,) = check(await lines_of(executor), KEY)["deleted"]
    assert (proof["run_id"], proof["head"]) == ("r", 0)  # the store does not read its records


async def test_secrets_are_in_no_audit(tmp_path: Path) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    async with opened(f"sqlite:///{tmp_path}/runs.db") as executor:
        await executor.start(payment, secret, run_id="r", by=f"ann {secret}")
        await executor.delete("r", by=secret, reason=secret)
        await executor.start(payment, secret, run_id="s", by=f"ann {secret}")
        assert [line async for line in executor.export("s", to=secret, by=secret)]
        lines = await lines_of(executor, content=True)
    assert secret.encode() not in b"".join(lines)
    assert check(lines, KEY)["records"]
    assert "redacted" in json.loads(lines[2])


async def test_proofs_in_an_encrypted_store_are_encrypted(tmp_path: Path) -> None:
    codec = AESGCMCodec({"k": b"c" * 32})
    async with opened(f"sqlite:///{tmp_path}/runs.db", codec=codec) as executor:
        await paid(executor, "r")
        before = check(await lines_of(executor), KEY)
        await executor.delete("r", by="eve-the-deleter")
        assert await executor.audit_faults(before["runs"], []) == []
        assert check(await lines_of(executor), KEY)["deleted"][0]["by"] == "eve-the-deleter"
    assert places_of(tmp_path, "eve-the-deleter") == set()


def test_items_of_audit_are_not_those_of_memory() -> None:
    assert AREAS == ("memory", "cache", "audit")


async def test_a_time_without_a_zone_is_refused_by_the_name_of_its_argument() -> None:
    async with Executor() as executor:
        with pytest.raises(ValueError, match=r"since=.* has no time zone"):
            executor.audit(since=datetime(2026, 11, 30))
