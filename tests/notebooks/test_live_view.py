"""A run that is drawn anew while the cell of a notebook runs."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import anyio
import pytest

from orchestrator import Approve, Context, Executor, Graph, Update, node
from orchestrator.errors import ModelUnavailable, RunUnknown
from orchestrator.models import Reply
from orchestrator.nodes import Confirm
from orchestrator.notebook import LiveView, live
from tests.cli.test_live import Speaker, Trip, plan, search, write
from tests.support.trial import NASTY, SECRET

pytestmark = pytest.mark.anyio

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


class Cell:
    """The outputs of a cell."""

    def __init__(self) -> None:
        self.bundles: list[Mapping[str, str]] = []
        self.updates: list[bool] = []

    def __call__(self, bundle: Mapping[str, str], *, update: bool) -> None:
        self.bundles.append(bundle)
        self.updates.append(update)


class Talker(Speaker):
    """The same, also where nobody watches."""

    async def complete(self, messages: object, *_: object, **__: object) -> Reply:
        return Reply(text="Nice")


@node
async def wait(state: Trip, ctx: Context[Cell]) -> Update:
    """Until it was seen to run."""
    while ctx.deps is not None and " wait" not in ctx.deps.bundles[-1]["text/plain"]:  # noqa: ASYNC110 - the view makes it so
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


async def test_one_output_follows_the_run_and_ends_as_the_run() -> None:
    cell = Cell()
    async with Executor(model=Speaker(), deps=cell) as executor:
        run = await live(executor, travel, "x", run_id="t", show=cell)
        assert run.status == "paused"
        assert cell.updates == [False, *[True] * (len(cell.updates) - 1)]
        *pictures, last = cell.bundles
        assert last == run._repr_mimebundle_()
        assert set(last) == {"image/svg+xml", "text/plain"}
        at_work = [one for one in pictures if " wait" in one["text/plain"]]
        assert "3/3" in at_work[-1]["text/plain"]
        assert re.search(r'class="[^"]*\brunning\b', at_work[-1]["text/html"])
        for one in pictures:
            ET.fromstring(SVG.findall(one["text/html"])[0])
            assert "<script>" not in one["text/html"]
            assert SECRET not in one["text/html"]
        later = Cell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.answer, "t", run.waiting[0].id, Approve())
            again = await live(executor, "t", show=later)
    assert again.status == "completed" or again.waiting
    assert later.bundles[-1] == again._repr_mimebundle_()


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


async def test_a_run_that_waits_is_not_followed_for_ever() -> None:
    cell = Cell()
    async with Executor(model=Talker()) as executor:
        run = await executor.start(travel, "x")
        with anyio.fail_after(30):
            found = await live(executor, run.run_id, show=cell)
    assert found.status == "paused"
    assert cell.bundles[-1] == found._repr_mimebundle_()


def test_without_ipython_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(RuntimeError, match="pip install ipykernel"):
        LiveView(travel)
