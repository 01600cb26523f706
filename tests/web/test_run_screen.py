"""The screen of one run in a real browser: it follows the run, also over the death of the server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from orchestrator import Context, Graph, node
from tests.support.paced import PacedModel
from tests.support.shell import Shell
from tests.web.api import Api, Note, api
from tests.web.mail import QUESTION, Post
from tests.web.test_screens_in_browser import SIZES, Screens, browser, serious_faults, start
from tests.web.test_serve import GATED, LOADED

__all__ = ["browser"]
pytestmark = pytest.mark.browser


@pytest.fixture
def post() -> Post:
    return Post(letters=2)


@pytest.fixture
def served(post: Post) -> Iterator[Api]:
    with api(post.graph, model=post.model) as found:
        yield found


@pytest.fixture
def screens(browser: object, served: Api) -> Iterator[Screens]:
    found = Screens(browser, served.url)  # type: ignore[arg-type]
    yield found
    found.close()
    assert not found.faults


def test_a_run_is_followed_from_its_question_to_its_answer(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    assert QUESTION in page.inner_text("#a-cards")
    assert "Call send_email?" in page.inner_text("#a-cards")
    steps = page.locator(".rows [role=treeitem]").count()
    drawn = page.locator("#a-canvas svg .visited").count()
    question = served.get("questions")["questions"][0]["question"]
    served.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
    page.wait_for_selector("#a-status:text-is('completed')")
    assert "She is told: sent." in page.inner_text("#a-cards")
    assert page.locator(".rows [role=treeitem]").count() > steps
    assert page.locator("#a-canvas svg .visited").count() > drawn
    assert page.locator("#a-actions button").count() == 0


def test_a_run_is_cancelled_and_retried_by_its_buttons(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.click("#a-actions >> text=Cancel")
    page.wait_for_selector("#a-status:text-is('cancelled')")
    page.click("#a-actions >> text=Retry")
    page.wait_for_selector("#a-status:text-is('paused')")
    page.click("#a-actions >> text=Answer")
    page.wait_for_url("**/inbox")
    page.wait_for_selector(".card[data-run=one]")


def test_a_reply_is_shown_while_it_comes_and_is_gone_when_it_is_journaled(
    browser: object,
) -> None:
    gates = {number: anyio.Event() for number in range(3)}

    async def before(call: int, piece: int) -> None:
        if piece in gates:
            await gates[piece].wait()

    @node
    async def write(state: Note, ctx: Context) -> dict[str, str]:
        return {"parts": (await ctx.model.complete("write")).text}

    graph = Graph(
        name="paced", state=Note, input="topic", output="parts", nodes={"write": write}, edges="START -> write -> END"
    )
    with api(graph, model=PacedModel([["Once ", "upon ", "a time"]], before)) as served:
        screens = Screens(browser, served.url)  # type: ignore[arg-type]
        served.post("runs", 201, graph="paced", input="x", run_id="one")
        page = screens.open("/runs/one")
        assert page.locator("#reply").is_hidden()
        served.portal.call(gates[0].set)
        page.wait_for_selector("#reply-text:text-is('Once ')")
        assert page.inner_text("#reply-node") == "write"
        served.portal.call(gates[1].set)
        page.wait_for_selector("#reply-text:text-is('Once upon ')")
        page.reload()
        page.wait_for_selector("#reply-text:text-is('Once upon ')")
        served.portal.call(gates[2].set)
        page.wait_for_selector("#a-status:text-is('completed')")
        page.wait_for_selector("#reply", state="hidden")
        assert "Once upon a time" in page.inner_text("#a-cards")
        screens.close()
        assert not screens.faults


def test_the_page_says_that_the_server_is_gone_and_comes_back_by_itself(browser: object, tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    (tmp_path / "shop.py").write_text(GATED)
    with shell.begin("serve", "shop:graph", "--port", 0, loads=LOADED) as process:
        line = process.line(err=True)
        while "serving" not in line:
            line = process.line(err=True)
        url = line.split()[1].rstrip("/;").removesuffix("/")
        httpx2.post(f"{url}/api/runs", json={"graph": "gated", "input": "bees", "run_id": "one"}, timeout=60)
        shell.wait_for("began", 0)
        screens = Screens(browser, url)  # type: ignore[arg-type]
        page = screens.open("/runs/one")
        page.wait_for_selector("#a-status:text-is('running')")
        process.signal(signal.SIGKILL)
        process.wait()
        page.wait_for_selector("#link:has-text('does not answer')")
    (tmp_path / "go").touch()
    with shell.begin("serve", "shop:graph", "--port", url.rpartition(":")[2], loads=LOADED):
        page.wait_for_selector("#a-status:text-is('completed')")
        assert "BEES" in page.inner_text("#a-cards")
        assert page.inner_text("#link") == ""
        assert all("ERR_" in fault for fault in screens.faults), screens.faults
        screens.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_serious_fault_that_axe_finds(screens: Screens, served: Api, size: tuple[int, int], theme: str) -> None:
    start(served, "one")
    page = screens.open("/runs/one", size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    assert serious_faults(page) == []
