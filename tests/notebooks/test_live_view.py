"""A run that a notebook follows while its cell runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from html import unescape
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Context, Executor, Graph, Run, Update, node
from orchestrator.errors import ModelUnavailable, RunUnknown, StoreUnavailable
from orchestrator.models import Reply
from orchestrator.nodes import Confirm
from orchestrator.notebook import LiveView, live
from tests.cli.test_live import Speaker, Trip, plan, search, write
from tests.support.trial import NASTY, SECRET

pytestmark = pytest.mark.anyio

FRAME = re.compile(r"<iframe [^>]*? srcdoc='([^']*)'></iframe>")
POSTED = re.compile(r'postMessage\(("(?:[^"\\]|\\.)*")')


class Cell:
    """The outputs of a cell, as they were shown one after the other."""

    def __init__(self) -> None:
        self.bundles: dict[str, list[Mapping[str, str]]] = {"page": [], "text": []}
        self.names: set[str] = set()

    def __call__(self, bundle: Mapping[str, str], *, update: bool, name: str) -> None:
        kind = name.rpartition("-")[2]
        assert update == bool(self.bundles[kind])
        self.bundles[kind].append(bundle)
        self.names.add(name)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs that were posted to the page."""
        found = (POSTED.search(bundle.get("text/html", "")) for bundle in self.bundles["text"])
        return [json.loads(json.loads(one[1])) for one in found if one is not None]


class Talker(Speaker):
    """The same, also where nobody watches."""

    async def complete(self, messages: object, *_: object, **__: object) -> Reply:
        return Reply(text="Nice")


def _at_work(run: Mapping[str, Any]) -> bool:
    return any(step["node"] == "wait" and step["status"] == "running" for step in run["steps"])


@node
async def wait(state: Trip, ctx: Context[Cell]) -> Update:
    """Until it was seen to run."""
    while ctx.deps is not None and not any(_at_work(run) for run in ctx.deps.runs):  # noqa: ASYNC110 - the view makes it so
        await anyio.sleep(0.02)
    return {"notes": f"<script>alert(1)</script> {NASTY} {SECRET}"}


travel = Graph(
    name="travel", state=Trip, input="topic",
    nodes={
        "plan": plan, "search": search, "wait": wait.with_(join="all"), "write": write.with_(join=None),
        "ok": Confirm(),
    },
    edges="START -> plan\n plan -> search : each cities\n search -> wait -> write -> ok -> END", output="report",
)  # fmt: skip


async def test_a_page_follows_the_run_and_the_cell_ends_with_its_picture() -> None:
    cell = Cell()
    async with Executor(model=Speaker(), deps=cell) as executor:
        run = await live(executor, travel, "x", run_id="t", show=cell)
        assert run.status == "paused"
        assert len(cell.names) == 2
        pages, texts = cell.bundles["page"], cell.bundles["text"]
        assert len(pages) == 2, "the page is made once; then it is told of the run"
        assert pages[-1] == run._repr_mimebundle_()
        assert set(pages[-1]) == {"image/svg+xml", "text/plain"}
        assert texts[-1] == {"text/plain": f"paused after {run.steps} steps; run.page() shows its page"}
        at_work = [bundle for bundle in texts[:-1] if " wait" in bundle["text/plain"]]
        assert "3/3" in at_work[-1]["text/plain"]
        heads = [posted["head"] for posted in cell.runs]
        assert heads == sorted(heads)
        for bundle in (pages[0], *texts):
            assert SECRET not in str(bundle)
            assert "<script>alert" not in str(bundle)
        (inside,) = FRAME.findall(pages[0]["text/html"])
        assert "default-src 'none'" in unescape(inside)


async def test_a_run_is_followed_by_its_id() -> None:
    async with Executor(model=Talker()) as executor:
        run = await executor.start(travel, "x", run_id="t")
        later = Cell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.answer, "t", run.waiting[0].id, Approve())
            again = await live(executor, "t", show=later)
    assert again.status == "completed" or again.waiting
    assert later.bundles["page"][-1] == again._repr_mimebundle_()


async def test_an_error_is_raised_as_it_is() -> None:
    class Down(Speaker):
        streams = False

        async def complete(self, messages: object, *_: object, **__: object) -> object:  # type: ignore[override]
            raise ModelUnavailable("nobody is there")

    async with Executor(model=Down()) as executor:
        with pytest.raises(ModelUnavailable):
            await live(executor, travel, "x", show=Cell())
        with pytest.raises(RunUnknown):
            await live(executor, "nosuch", show=Cell())


async def test_a_store_that_the_view_cannot_read_does_not_interrupt_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell()
    async with Executor(model=Talker()) as executor:
        load, failures = executor.load, [StoreUnavailable("not now")]

        async def fails_at_first(run_id: str) -> Run:
            if failures:
                raise failures.pop()
            return await load(run_id)

        monkeypatch.setattr(executor, "load", fails_at_first)
        run = await live(executor, travel, "x", show=cell)
    assert not failures
    assert run.status == "paused"
    assert cell.bundles["page"][-1] == run._repr_mimebundle_()


@pytest.mark.parametrize("height", [0, -1, True, "7", 1.5])
async def test_a_height_is_a_number_of_pixels(height: Any) -> None:
    async with Executor(model=Talker()) as executor:
        run = await executor.start(travel, "x")
        with pytest.raises(ValueError, match="height must be a number of pixels"):
            run.page(height=height)


async def test_a_run_that_waits_is_not_followed_for_ever() -> None:
    cell = Cell()
    async with Executor(model=Talker()) as executor:
        run = await executor.start(travel, "x")
        with anyio.fail_after(30):
            found = await live(executor, run.run_id, show=cell)
    assert found.status == "paused"
    assert cell.bundles["page"][-1] == found._repr_mimebundle_()


async def nothing() -> Run:
    raise AssertionError("nothing is loaded")


def test_without_ipython_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(RuntimeError, match="pip install ipykernel"):
        LiveView(nothing, travel)
