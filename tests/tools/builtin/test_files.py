"""The group `files`: what it does to files, and that edits can be undone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Tool, ToolResult, node
from orchestrator.tools import risk_at_most, tools_from_ref
from orchestrator.tools.builtin.files import Files, edits

pytestmark = pytest.mark.anyio


async def call(files: Files, name: str, /, key: str | None = None, **args: Any) -> ToolResult:
    tool = files.get(name)
    assert isinstance(tool, Tool)
    return await tool.invoke(tool.validate(args), key=key)


async def done(files: Files, name: str, /, key: str | None = None, **args: Any) -> str:
    result = await call(files, name, key, **args)
    assert result.error is None, result.error
    return result.text


async def refused(files: Files, name: str, /, key: str | None = None, **args: Any) -> str:
    result = await call(files, name, key, **args)
    assert result.failed, result.text
    assert "Unexpected" not in str(result.error)
    return str(result.error)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_risks_and_effects_are_said_by_each_tool(files: Files) -> None:
    found = {tool.name: (tool.risk, tool.effect, tool.group) for tool in files}
    assert found == {
        "view_file": ("read", "read", "files"),
        "create_file": ("write", "irreversible", "files"),
        "replace_in_file": ("write", "irreversible", "files"),
        "insert_in_file": ("write", "irreversible", "files"),
        "undo_edit": ("write", "irreversible", "files"),
    }
    assert [one.name for one in files.subset(["view_file"]) if risk_at_most(one.risk, "read")] == ["view_file"]
    for tool in files:
        assert "key" not in str(tool.parameters)
        assert all("description" in schema for schema in tool.parameters["properties"].values())  # type: ignore[union-attr, call-overload]


async def test_a_file_is_made_shown_changed_and_each_edit_taken_back(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "docs/a.txt"
    assert await done(files, "create_file", path="docs/a.txt", text="one\ntwo\n") == "Written: docs/a.txt, 2 lines."
    assert await done(files, "view_file", path="docs/a.txt") == "     1\tone\n     2\ttwo"
    assert "     2\tzwei" in await done(files, "replace_in_file", path="docs/a.txt", old="two", new="zwei")
    assert "     1\tzero\n     2\tone" in await done(files, "insert_in_file", path="docs/a.txt", line=0, text="zero")
    assert path.read_text() == "zero\none\nzwei\n"
    other = Files(tmp_path)  # as after the process died: what undoes edits is in the root
    assert "insert" in await done(other, "undo_edit", path="docs/a.txt")
    assert path.read_text() == "one\nzwei\n"
    assert "replace" in await done(other, "undo_edit", path="./docs//a.txt")
    assert path.read_text() == "one\ntwo\n"
    await done(other, "undo_edit", path="docs/a.txt")
    assert not path.exists()
    assert "there is no edit of it" in await refused(other, "undo_edit", path="docs/a.txt")


async def test_a_record_of_an_edit_that_is_too_large_to_be_one_is_not_read(files: Files, tmp_path: Path) -> None:
    """As when it came with the root, and takes no room on the disk."""
    await done(files, "create_file", path="a", text="one")
    (record,) = (tmp_path / ".orchestrator" / "undo").glob("0*")
    os.truncate(record, 70 << 20)
    for tool, args in (("insert_in_file", {"line": 0, "text": "x"}), ("undo_edit", {})):
        error = await refused(files, tool, path="a", **args)
        assert record.name in error
        assert "is larger than" in error
    assert (tmp_path / "a").read_text() == "one"


async def test_undo_goes_on_behind_edits_that_were_undone(files: Files, tmp_path: Path) -> None:
    await done(files, "create_file", path="a", text="1")
    await done(files, "replace_in_file", path="a", old="1", new="2")
    await done(files, "undo_edit", path="a")
    await done(files, "replace_in_file", path="a", old="1", new="3")
    await done(files, "undo_edit", path="a")
    assert (tmp_path / "a").read_text() == "1"
    await done(files, "undo_edit", path="a")
    assert not (tmp_path / "a").exists()


async def test_nothing_is_undone_that_somebody_else_changed(files: Files, tmp_path: Path) -> None:
    await done(files, "create_file", path="a", text="mine")
    (tmp_path / "a").write_text("theirs")
    assert "another program has changed it since" in await refused(files, "undo_edit", path="a")
    assert (tmp_path / "a").read_text() == "theirs"


async def test_only_the_last_edits_keep_what_was_there(files: Files, tmp_path: Path) -> None:
    await done(files, "create_file", path="a", text="0")
    for number in range(22):
        await done(files, "replace_in_file", path="a", old=str(number), new=str(number + 1))
    for _ in range(20):
        await call(files, "undo_edit", path="a")
    assert int((tmp_path / "a").read_text()) < 22
    assert "no longer kept" in await refused(files, "undo_edit", path="a")


async def test_files_that_are_there_are_not_written_over_unasked(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    assert "the file exists already" in await refused(files, "create_file", path="a", text="new")
    await done(files, "create_file", path="a", text="old")  # as it is: nothing to do, and nothing to undo
    assert "no edit" in await refused(files, "undo_edit", path="a")
    await done(files, "create_file", path="a", text="new", overwrite=True)
    assert (tmp_path / "a").read_text() == "new"
    await done(files, "undo_edit", path="a")
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        ("a\nb\n", "c", "not in the file"),
        ("a  b\n", "a b", "differs only in white space from line 1"),
        ("x\n\tif a:\n", "    if a:", "differs only in white space from line 2"),
        ("aa\nb\naa\n", "aa", "2 times, at lines 1, 3"),
        ("aaa", "aa", "2 times, at lines 1, 1"),
        ("a\n" * 12, "a", "12 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."),
        ("a", "", "'old' is empty"),
        ("a", "new", "are the same"),
    ],
)
async def test_a_text_that_is_not_there_once_is_not_replaced(
    files: Files, tmp_path: Path, text: str, old: str, said: str
) -> None:
    (tmp_path / "a").write_text(text)
    assert said in await refused(files, "replace_in_file", path="a", old=old, new="new")
    assert (tmp_path / "a").read_text() == text


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", "b\nc", "y\nz", b"a\r\ny\r\nz\r\n"),
        (b"a\r\nb\nc\n", "\nb", "\nB", b"a\nB\nc\n"),
        (b"a\nb", "a\r\nb", "c\r\nd", b"c\nd"),
        (b"a\rb\n", "b", "c", b"a\rc\n"),
        (b"\xef\xbb\xbfa", "a", "b", b"\xef\xbb\xbfb"),
        ("\ufeffä\n".encode("utf-16-le"), "ä", "ö", "\ufeffö\n".encode("utf-16-le")),
        ("\ufeffä\r\n".encode("utf-16-be"), "ä\n", "ö\n", "\ufeffö\r\n".encode("utf-16-be")),
        (b"a\x0cb\xe2\x80\xa8c\n", "c", "d", b"a\x0cb\xe2\x80\xa8d\n"),
        (b"\r\n\r\nab\r\n", "\nab\n", "\ncd\n", b"\r\n\r\ncd\r\n"),
    ],
)
async def test_what_is_not_replaced_stays_to_the_byte(
    files: Files, tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "a").write_bytes(before)
    await done(files, "replace_in_file", path="a", old=old, new=new)
    assert (tmp_path / "a").read_bytes() == after
    await done(files, "undo_edit", path="a")
    assert (tmp_path / "a").read_bytes() == before


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        (b"a\nb\n", 1, "x", b"a\nx\nb\n"),
        (b"a\nb", 2, "x\n", b"a\nb\nx\n"),
        (b"a\nb\n", 2, "x\ny", b"a\nb\nx\ny\n"),
        (b"a\r\nb\r\n", 1, "x\ny\n", b"a\r\nx\r\ny\r\nb\r\n"),
        (b"", 0, "x", b"x\n"),
        (b"a\n\n", 1, "\n", b"a\n\n\n"),
    ],
)
async def test_lines_are_inserted(
    files: Files, tmp_path: Path, before: bytes, line: int, text: str, after: bytes
) -> None:
    (tmp_path / "a").write_bytes(before)
    await done(files, "insert_in_file", path="a", line=line, text=text)
    assert (tmp_path / "a").read_bytes() == after


async def test_there_is_no_line_behind_the_last(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    assert "no line 2: the file has 1" in await refused(files, "insert_in_file", path="a", line=2, text="x")
    assert "no line 3" in await refused(files, "view_file", path="a", first=3)
    assert "in order" in await refused(files, "view_file", path="a", first=1, last=0)


async def test_long_files_are_shown_in_parts_and_long_lines_cut(tmp_path: Path) -> None:
    files = Files(tmp_path, shown=400)
    (tmp_path / "a").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    first = await done(files, "view_file", path="a")
    assert len(first) < 500
    where = int(first.rpartition("first=")[2].rstrip("]"))
    assert f"[{101 - where} more lines" in first
    assert (await done(files, "view_file", path="a", first=where)).startswith(f"{where:6}\tline {where}\n")
    (tmp_path / "b").write_text("x" * 5000)
    assert "[3000 more characters]" in await done(files, "view_file", path="b")


async def test_folders_are_listed_two_levels_deep_without_what_is_hidden(files: Files, tmp_path: Path) -> None:
    for name in ("a/b/c/d", ".git/config", ".env", ".orchestrator/runs.db", "z", "e\x1b[2J"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to("/")
    os.mkfifo(tmp_path / "pipe")
    listed = (await done(files, "view_file")).splitlines()
    assert listed == ["a/", "a/b/", r"'e\x1b[2J'", "link (a link, not followed)", "pipe (no file)", "z"]
    assert await done(files, "view_file", path="a") == "b/\nb/c/"
    (tmp_path / "empty").mkdir()
    assert await done(files, "view_file", path="empty") == "(empty)"


async def test_what_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    files = Files(tmp_path, limit=100)
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes("größer".encode("latin-1"))
    (tmp_path / "large").write_bytes(b"x" * 101)
    for name in ("view_file", "replace_in_file", "insert_in_file"):
        more = {"replace_in_file": {"old": "a"}, "insert_in_file": {"line": 0, "text": "x"}}.get(name, {})
        assert "cannot be read as text" in await refused(files, name, path="binary", **more)
        assert "cannot be read as text" in await refused(files, name, path="latin", **more)
        assert "larger than 100 bytes" in await refused(files, name, path="large", **more)
    assert "larger than 100 bytes" in await refused(files, "create_file", path="new", text="x" * 101)
    assert not (tmp_path / "new").exists()
    latin = Files(tmp_path, encoding="latin-1")
    await done(latin, "replace_in_file", path="latin", old="größer", new="kürzer")
    assert (tmp_path / "latin").read_bytes() == "kürzer".encode("latin-1")
    assert "cannot be written in latin-1" in await refused(latin, "replace_in_file", path="latin", old="k", new="€")


async def test_what_would_be_no_text_is_not_written(files: Files, tmp_path: Path) -> None:
    assert "NUL" in await refused(files, "create_file", path="new/a", text="x\0")
    assert "larger" in await refused(files, "create_file", path="new/a", text="x" * 1_000_001)
    assert not (tmp_path / "new").exists()
    assert "cannot be read as text" not in await done(files, "create_file", path="a", text="one line")
    assert "NUL" in await refused(files, "replace_in_file", path="a", old="one", new="\0")
    assert (tmp_path / "a").read_text() == "one line"


async def test_permissions_stay(files: Files, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("echo a\n")
    script.chmod(0o750)
    await done(files, "replace_in_file", path="run.sh", old="a", new="b")
    assert script.stat().st_mode & 0o7777 == 0o750
    await done(files, "undo_edit", path="run.sh")
    assert script.stat().st_mode & 0o7777 == 0o750
    assert (tmp_path / ".orchestrator/undo").stat().st_mode & 0o077 == 0


async def test_a_reference_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a").write_text("here")
    monkeypatch.chdir(tmp_path)
    for ref, directory in (("files:docs", None), ("files", str(tmp_path / "docs")), (f"files:{tmp_path}/docs", "/")):
        found = tools_from_ref(ref, directory)
        assert isinstance(found, Files)
        assert await done(found, "view_file", path="a") == "     1\there"
    with pytest.raises(Exception, match="'nowhere' is not a directory: create it first"):
        tools_from_ref("files:nowhere")


async def test_a_pattern_alone_is_no_list_of_them(tmp_path: Path) -> None:
    """Read letter by letter it would hide other files, and no longer these."""
    with pytest.raises(TypeError, match=r"write hidden=\['\.git'\]"):
        Files(tmp_path, hidden=".git")


async def test_who_waits_too_long_for_another_process_is_told(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "_PATIENCE", 0.05)
    await done(files, "create_file", path="a", text="1")
    lock = os.open(tmp_path / ".orchestrator/undo/lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as one does that was stopped
        assert "may have been stopped" in await refused(files, "insert_in_file", path="a", line=0, text="x")
    finally:
        os.close(lock)
    await done(files, "insert_in_file", path="a", line=0, text="x")


class ManyTries(BaseModel):
    said: list[str] = []


async def test_a_step_that_is_tried_again_loses_no_edit(tmp_path: Path) -> None:
    tries: list[int] = []

    @node(retry=Retry(wait=0, on=("RuntimeError",)))
    async def edit(state: ManyTries, ctx: Context) -> dict[str, object]:
        """Make a file and change it."""
        made = await ctx.tool("create_file", path="a", text="one", overwrite=True)
        changed = await ctx.tool("replace_in_file", path="a", old="one", new="two")
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("later")
        return {"said": [made.text, changed.text]}

    graph = Graph(name="tries", state=ManyTries, nodes={"edit": edit}, edges="START -> edit -> END", output="said")
    async with Executor(tools=Files(tmp_path)) as executor:
        run = await executor.start(graph, {})
    assert (run.status, len(tries)) == ("completed", 2)
    assert (tmp_path / "a").read_text() == "two"


# -- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["create_file", "replace_in_file", "insert_in_file", "undo_edit"])
async def test_after_a_crash_the_file_says_whether_a_call_happened(tmp_path: Path, name: str) -> None:
    files = Files(tmp_path)
    (tmp_path / "a").write_text("old\n")
    await done(files, "replace_in_file", path="a", old="old", new="older")
    before = (tmp_path / "a").read_text()
    args: dict[str, Any] = {
        "create_file": {"text": "new", "overwrite": True},
        "replace_in_file": {"old": "older", "new": "new"}, "insert_in_file": {"line": 0, "text": "new"},
        "undo_edit": {},
    }[name]  # fmt: skip
    said = await done(files, name, "run/1/call", path="a", **args)
    after = (tmp_path / "a").read_text()
    reconcile = getattr(Files(tmp_path).get(name), "reconcile")  # noqa: B009  only tools that have one have the attribute
    assert reconcile("run/1/call") == said
    assert reconcile("run/1/other") is None
    (tmp_path / "a").write_text(before)  # it was noted, and then the process died
    assert reconcile("run/1/call") is None
    (tmp_path / "a").write_text("something else")
    with pytest.raises(Exception, match="it is not known whether it was edited"):
        reconcile("run/1/call")
    (tmp_path / "a").write_text(after)
    await done(files, "insert_in_file", "run/2/call", path="a", line=0, text="later")
    assert reconcile("run/1/call") == said


async def test_an_edit_that_was_noted_and_not_made_is_no_edit(files: Files, tmp_path: Path) -> None:
    await done(files, "create_file", path="a", text="1")
    await done(files, "replace_in_file", "k", path="a", old="1", new="2")
    (tmp_path / "a").write_text("1")  # as if the process had died between the note and the edit
    await done(files, "insert_in_file", path="a", line=1, text="x")
    await done(files, "undo_edit", path="a")
    assert (tmp_path / "a").read_text() == "1"
    assert "create" in await done(files, "undo_edit", path="a")


async def test_notes_that_were_cut_off_and_files_half_written_do_no_harm(files: Files, tmp_path: Path) -> None:
    await done(files, "create_file", path="a", text="1")
    note = next((tmp_path / ".orchestrator/undo").glob("0000000001.*"))
    torn = note.with_name(note.name.replace("0000000001", "0000000002"))
    torn.write_bytes(note.read_bytes()[:20])
    (tmp_path / ".orchestrator-new").write_text("half")
    await done(files, "replace_in_file", path="a", old="1", new="2")
    assert not (tmp_path / ".orchestrator-new").exists()
    await done(files, "undo_edit", path="a")
    await done(files, "undo_edit", path="a")
    assert not (tmp_path / "a").exists()
