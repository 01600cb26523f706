"""The group `files`: nothing outside of the root is read or changed, whatever a path says or leads through."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.tools.builtin.files import Files
from orchestrator.tools.builtin.files.directory import parts_of
from tests.tools.builtin.test_files import call, done, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: it is all about what a thread does to files."""
    return "asyncio"


SECRET = "what nobody is to see"


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Files:
    """A root beside a secret. By paths as well, which is how it works on Windows."""
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "in/a").write_text("inside")
    (root / ".git").mkdir()
    (root / ".git/config").write_text(SECRET)
    (root / ".env").write_text(SECRET)
    (root / ".env.local").write_text(SECRET)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret").write_text(SECRET)
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2/secret").write_text(SECRET)
    (root / "to_folder").symlink_to(tmp_path / "out")
    (root / "to_file").symlink_to(tmp_path / "out/secret")
    (root / "to_relative").symlink_to("../out")
    (root / "in/up").symlink_to("../../out/secret")
    (root / "to_nothing").symlink_to(tmp_path / "out/new")
    (root / "to_link").symlink_to("to_folder")
    (root / "loop").symlink_to("loop")
    (root / "to_inside").symlink_to("in")
    os.link(tmp_path / "out/secret", root / "hard")
    os.mkfifo(root / "pipe")
    return Files(root, descriptors=request.param)


def outside(files: Files) -> dict[str, str]:
    above = Path(files.root).parent
    return {
        str(path): path.read_text() for name in ("out", "root2") for path in (above / name).rglob("*") if path.is_file()
    }


ESCAPES = [
    "..", "../", "../out/secret", "../root2/secret", "in/../../out/secret", "in/..", "./../out/secret", "in//../x",
    "/", "/etc/passwd", "//etc/passwd", "///out/secret", "~", "~/x", "~root/x", "C:/x", "c:x", "\\etc\\passwd",
    "..\\out\\secret", "in\\..\\..\\out", "\\\\host\\share", "file:///etc/passwd", "\uff0fetc/passwd",
    "to_folder/secret", "to_file", "to_relative/secret", "in/up", "to_nothing", "to_link/secret", "loop", "loop/x",
    "to_inside/a", "to_folder/../in/a", "hard", "pipe", "in/a/", "in/a/../a",
    ".git/config", ".GIT/config", ".gi\u200dt/config", ".git /config", ".git./config", "\uff0egit/config", "in/.git/x",
    ".env", ".ENV", ".env.local", ".env.", "in/.env", ".orchestrator/runs.db", ".Orchestrator/x", ".orchestrator-new",
    "a\0b", "in/a\0", "a\nb", "a\x1b[2Jb", "\u202eexe.txt", "x" * 256, "/".join("x" * 50), "..\u200d/out",
]  # fmt: skip
INSIDE = {"in/a/", "file:///etc/passwd"}
"""Those that only look as if they led out."""
CALLS: dict[str, dict[str, Any]] = {
    "view_file": {}, "replace_in_file": {"old": SECRET, "new": "x"}, "insert_in_file": {"line": 0, "text": "x"},
    "undo_edit": {}, "create_file": {"text": "x"},
}  # fmt: skip


@pytest.mark.full
async def test_no_path_leads_out(files: Files) -> None:
    before = outside(files)
    led: list[tuple[str, str, str]] = []
    for path in ESCAPES:
        for name, args in CALLS.items():
            result = await call(files, name, path=path, **args)
            if SECRET in result.text or "Unexpected" in result.text or not (result.failed or path in INSIDE):
                led.append((path, name, result.text))
    assert not led
    assert outside(files) == before
    assert (Path(files.root) / ".git/config").read_text() == SECRET


def test_a_path_that_is_no_text_is_refused_before_the_file_is_looked_for() -> None:
    with pytest.raises(Exception, match="cannot be the name of a file"):
        parts_of("in/\ud800")


@pytest.mark.parametrize(
    "path", ["ab:c", "con", "NUL.txt", "com1", "a.", "a ", "git~1", "a|b", "x/aux.c/y", "a?", "a*", 'a"b', "a<b"]
)
def test_what_windows_reads_otherwise_is_refused_there(path: str) -> None:
    with pytest.raises(Exception, match="has a special meaning on Windows"):
        parts_of(path, windows=True)
    assert parts_of(path, windows=False) == tuple(path.split("/"))


async def test_devices_and_sockets_are_no_files(tmp_path: Path) -> None:
    files = Files("/dev")
    assert "device, pipe or socket" in await refused(files, "view_file", path="zero")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "s"))
        assert "device, pipe or socket" in await refused(Files(tmp_path), "view_file", path="s")


async def test_hard_links_are_read_where_that_is_allowed_and_an_edit_parts_them(files: Files, tmp_path: Path) -> None:
    allowed = Files(files.root, hard_links=True)
    assert SECRET in await done(allowed, "view_file", path="hard")
    await done(allowed, "replace_in_file", path="hard", old=SECRET, new="x")
    assert (tmp_path / "out/secret").read_text() == SECRET


async def test_the_place_of_notes_cannot_be_led_elsewhere(files: Files, tmp_path: Path) -> None:
    (Path(files.root) / ".orchestrator").symlink_to(tmp_path / "out")
    assert "symbolic link" in await refused(files, "create_file", path="new", text="x")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["secret"]
    assert not (Path(files.root) / "new").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"mode": 0o6777},
        {"path": "../out/secret"},
        {"number": "x"},
        {"after": 5},
        {"said": None},
        {"kind": "x"},
    ],
    ids=str,
)
async def test_records_that_somebody_else_put_there_are_not_believed(tmp_path: Path, change: dict[str, object]) -> None:
    """A root may come from anywhere, as an archive that was unpacked."""
    (tmp_path / "root").mkdir()
    files = Files(tmp_path / "root")
    await done(files, "create_file", path="a", text="one")
    await done(files, "replace_in_file", "k", path="a", old="one", new="two")
    [record] = (tmp_path / "root/.orchestrator/undo").glob("0000000002.*")
    head, _, body = record.read_text().partition("\n")
    record.write_text(json.dumps({**json.loads(head), **change}) + "\n" + body)
    result = await call(files, "undo_edit", path="a")
    assert "another program has changed it since" in result.text  # the record before it is about another content
    reconcile = getattr(files.get("replace_in_file"), "reconcile")  # noqa: B009  only some tools have one
    assert reconcile("k") is None
    assert (tmp_path / "root/a").stat().st_mode & 0o7000 == 0


async def test_numbers_of_records_may_be_of_any_length(tmp_path: Path) -> None:
    files = Files(tmp_path)
    await done(files, "create_file", path="a", text="0")
    [record] = (tmp_path / ".orchestrator/undo").glob("*.none")
    record.rename(record.with_name(record.name.replace("0000000001", "9999999999")))
    for number in range(3):
        await done(files, "replace_in_file", path="a", old=str(number), new=str(number + 1))
    for _ in range(4):
        await done(files, "undo_edit", path="a")
    assert not (tmp_path / "a").exists()


_traps: dict[str, Callable[[], object]] = {}
"""What is done just before a file of a name is opened, once."""


def _spring(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and _traps and isinstance(args[0], str):
        trap = _traps.pop(args[0].rpartition("/")[2], None)
        if trap is not None:
            trap()


@pytest.fixture
def trap() -> Iterator[dict[str, Callable[[], object]]]:
    """Swaps files between a check and an opening: the interpreter tells its audit hooks what is about to be opened."""
    if _spring not in _hooked:
        sys.addaudithook(_spring)
        _hooked.append(_spring)
    yield _traps
    _traps.clear()


_hooked: list[object] = []


@pytest.mark.parametrize("descriptors", [True, False])
@pytest.mark.parametrize("at", ["in", "a"])
async def test_what_becomes_a_link_in_between_is_not_followed(
    tmp_path: Path, trap: dict[str, Callable[[], object]], at: str, descriptors: bool
) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    (root / "in").mkdir(parents=True)
    (root / "in/a").write_text("inside")
    out.mkdir()
    (out / "a").write_text(SECRET)
    files = Files(root, descriptors=descriptors)

    def swap() -> None:
        os.rename(root / "in", root / "kept")
        (root / "in").symlink_to(out)

    trap[at] = swap
    result = await call(files, "view_file", path="in/a")
    if descriptors:
        # Either the link is refused, or the folder was open already, and what is read is what was checked.
        assert result.failed if at == "in" else "inside" in result.text
        assert not trap
    else:
        assert trap or SECRET in result.text  # as is said of systems without `openat`: and the trap works


@pytest.mark.parametrize("at", ["in", "a", ".orchestrator-new"])
async def test_nor_is_it_written_through(tmp_path: Path, trap: dict[str, Callable[[], object]], at: str) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    (root / "in").mkdir(parents=True)
    (root / "in/a").write_text("inside")
    out.mkdir()
    (out / "a").write_text("inside")
    files = Files(root)

    def swap() -> None:
        if at == "in":
            os.rename(root / "in", root / "kept")
            (root / "in").symlink_to(out)
        else:
            os.unlink(root / "in/a")
            (root / "in/a").symlink_to(out / "a")

    trap[at] = swap
    await refused(files, "replace_in_file", path="in/a", old="inside", new="changed")
    assert not trap
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("a", "inside")]


async def test_who_saves_in_between_loses_nothing(tmp_path: Path, trap: dict[str, Callable[[], object]]) -> None:
    (tmp_path / "a").write_text("old")
    trap[".orchestrator-new"] = lambda: (tmp_path / "a").write_text("saved by an editor")
    files = Files(tmp_path)
    said = await refused(files, "replace_in_file", path="a", old="old", new="new")
    assert "another program changed it in the meantime" in said
    assert [path.name for path in tmp_path.iterdir() if path.name != ".orchestrator"] == ["a"]  # no other is left
    assert (tmp_path / "a").read_text() == "saved by an editor"


async def test_edits_at_the_same_time_are_made_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    roots = [Files(tmp_path), Files(tmp_path)]  # as two processes have them

    async def add(number: int) -> None:
        await done(roots[number % 2], "insert_in_file", path="a", line=0, text=str(number))

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(add, number)
    assert sorted(map(int, (tmp_path / "a").read_text().split())) == list(range(10))
    for _ in range(10):
        await done(roots[0], "undo_edit", path="a")
    assert (tmp_path / "a").read_text() == ""
