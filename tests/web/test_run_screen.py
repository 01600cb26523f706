"""The screen of one run in a real browser: it follows the run, also over the death of the server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import httpx2
import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, append, node
from tests.support.paced import PacedModel
from tests.support.shell import Process, Shell
from tests.web.api import Api, Note, api
from tests.web.mail import LETTER, QUESTION, THOUGHT, Post
from tests.web.test_serve import GATED, LOADED
from tests.web.windows import SIZES, Screens, in_themes, serious_faults, start

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
CARD = "#questions article.card:not(.over)"
ASKING = """
from pydantic import BaseModel
from orchestrator import Graph
from orchestrator.nodes import Confirm

class S(BaseModel):
    topic: str = ""

graph = Graph(
    name="asking", state=S, input="topic", output="topic", nodes={"confirm": Confirm(prompt="Send it?")},
    edges="START -> confirm\\nconfirm -> END : approved\\nconfirm -> END : denied"
)
"""
WRITING = """
import pathlib, anyio
from pydantic import BaseModel
from orchestrator import Context, Graph, Update, node
from tests.support.paced import PacedModel

class S(BaseModel):
    topic: str = ""
    said: str = ""

@node
async def write(state: S, ctx: Context) -> Update:
    return {"said": (await ctx.model.complete("write")).text}

async def before(call: int, piece: int) -> None:
    while piece == 2 and not pathlib.Path("go").exists():
        await anyio.sleep(0.01)

graph = Graph(
    name="writing", state=S, input="topic", output="said", nodes={"write": write}, edges="START -> write -> END"
)
model = PacedModel([["Once ", "upon ", "a time"]], before)
"""


class Planned(BaseModel):
    """Tasks that a run plans itself."""

    tasks: list[dict[str, object]] = []
    done: Annotated[list[str], append] = []


def test_a_run_is_followed_from_its_question_to_its_answer(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    assert QUESTION in page.inner_text("#a-cards")
    page.wait_for_selector(CARD)
    steps = page.locator(".rows [role=treeitem]").count()
    drawn = page.locator("#a-canvas svg .visited").count()
    question = served.get("questions")["questions"][0]["question"]
    served.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True, by="bob")
    page.wait_for_selector("#a-status:text-is('completed')")
    assert "She is told: sent." in page.inner_text("#a-cards")
    assert page.locator(".rows [role=treeitem]").count() > steps
    assert page.locator("#a-canvas svg .visited").count() > drawn
    assert page.locator("#a-actions button").all_inner_texts() == ["Fork"]
    page.wait_for_selector("#questions .over .outcome:has-text('bob')")
    assert page.locator("#questions button:visible").count() == 0


def test_a_call_is_edited_and_approved_on_the_page_of_its_run(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector(CARD)
    shown = page.inner_text("#questions")
    assert all(line in shown for line in ("send_email", "write", THOUGHT, *LETTER.splitlines()))
    page.click(f"{CARD} >> text=Edit")
    page.fill("[data-field=body]", LETTER.replace("Thursday", "Friday"))
    page.click(f"{CARD} summary")
    page.wait_for_selector(f"{CARD} .diff .add")
    assert "on Thursday." in page.inner_text(f"{CARD} .diff .cut")
    page.click("text=Approve as edited")
    page.wait_for_selector("#a-status:text-is('completed')")
    page.wait_for_selector("#questions .over .outcome:has-text('Approved.')")
    assert [one["body"] for one in post.sent] == [LETTER.replace("Thursday", "Friday")]


def test_a_call_is_denied_by_keys_on_the_page_of_its_run(screens: Screens, served: Api, post: Post) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector(CARD)
    page.keyboard.press("d")
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    page.wait_for_selector("#questions .over .outcome:has-text('Denied.')")
    served.settled("one")
    (answer,) = [one["answer"] for one in served.get("runs/one/records")["records"] if one["type"] == "answered"]
    assert answer == {"type": "deny", "reason": "not today"}
    assert post.sent == []


def test_an_answer_that_comes_too_late_says_what_became_of_the_question(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector(CARD)
    digest = page.get_attribute(CARD, "data-digest")
    page.evaluate("document.querySelector('#questions article').dataset.digest = 'of-something-else'")
    page.click(f"{CARD} >> text=Approve")
    page.wait_for_selector("#questions .over .outcome:not(:empty)")
    assert served.get("runs/one")["status"] == "paused"
    assert served.get("questions")["questions"][0]["question"]["digest"] == digest
    screens.faults[:] = [one for one in screens.faults if "409" not in one]


def test_a_text_is_answered_on_the_page_of_its_run(browser: object) -> None:
    with api() as served:
        screens = Screens(browser, served.url)  # type: ignore[arg-type]
        served.start("chat", run_id="one")
        page = screens.open("/runs/one")
        page.fill(".say textarea", "a text with\ntwo lines")  # a graph that asks for texts is a chat
        page.click(".say button")
        page.wait_for_selector("#a-status:text-is('completed')")
        assert served.get("runs/one")["state"]["tool"] == "a text with\ntwo lines"
        screens.close()
        assert not screens.faults


def test_a_server_that_takes_no_answers_shows_the_question_without_buttons(browser: object, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    with api(store=store) as served:
        served.start("payment", run_id="one")
    with api(store=store, settings={"read_only": True}) as served:
        screens = Screens(browser, served.url)  # type: ignore[arg-type]
        page = screens.open("/runs/one")
        page.wait_for_selector(CARD)
        assert "bees" in page.inner_text(CARD)
        assert page.locator("#questions button").count() == 0
        assert page.locator("#a-actions button").count() == 0
        page.keyboard.press("a")
        assert served.get("runs/one")["status"] == "paused"
        screens.close()
        assert not screens.faults


def test_a_run_is_cancelled_and_retried_by_its_buttons(screens: Screens, served: Api) -> None:
    start(served, "one")
    page = screens.open("/runs/one")
    page.wait_for_selector(CARD)
    page.click("#a-actions >> text=Cancel")
    page.wait_for_selector("#a-status:text-is('cancelled')")
    page.wait_for_selector("#questions .over")
    page.click("#a-actions >> text=Retry")
    page.wait_for_selector("#a-status:text-is('paused')")
    page.wait_for_selector(CARD)


def test_what_a_run_plans_appears_in_the_picture_while_it_runs(browser: object) -> None:
    gates = {"plan": anyio.Event(), "b": anyio.Event()}

    @node
    async def plan(state: Planned) -> dict[str, object]:
        await gates["plan"].wait()
        return {"tasks": [{"id": "a", "needs": []}, {"id": "b", "needs": ["a"]}]}

    @node
    async def work(state: Planned, ctx: Context) -> dict[str, object]:
        name = cast("dict[str, str]", ctx.item)["id"]
        if name == "b":
            await gates["b"].wait()
        return {"done": name}

    @node(effect="pure")
    def close(state: Planned) -> dict[str, object]:
        return {"done": "all"}

    graph = Graph(
        name="planned", state=Planned, nodes={"plan": plan, "work": work, "close": close.with_(join="all")},
        edges="START -> plan\nplan -> work : each tasks\nwork -> close\nclose -> END",
    )  # fmt: skip
    with api(graph) as served:
        screens = Screens(browser, served.url)  # type: ignore[arg-type]
        served.post("runs", 201, graph="planned", input={}, run_id="one")
        page = screens.open("/runs/one")
        assert page.locator("#a-canvas [id^='a-plan-1.']").count() == 0
        page.click("#a-in")
        served.portal.call(gates["plan"].set)
        page.wait_for_selector("#a-canvas [id='a-plan-1.1'].visited", state="attached")
        page.wait_for_selector("#a-canvas [id='a-plan-1.2'].running", state="attached")
        served.portal.call(gates["b"].set)
        page.wait_for_selector("#a-canvas [id='a-plan-1.2'].visited", state="attached")
        page.wait_for_selector("#a-status:text-is('completed')")
        screens.close()
        assert not screens.faults


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


@contextmanager
def serving(shell: Shell, *words: object, port: int = 0) -> Iterator[tuple[Process, str]]:
    """A real server, and its address without a slash at the end."""
    with shell.begin("serve", *words, "--port", port, loads=LOADED) as process:
        line = process.line(err=True)
        while "serving" not in line:
            line = process.line(err=True)
        yield process, line.split()[1].rstrip("/;")


def kill(process: Process, page: Page) -> None:
    """Kill a server, and wait until the page says so."""
    process.signal(signal.SIGKILL)
    process.wait()
    page.wait_for_selector("#link:has-text('does not answer')")


def gone_faults(screens: Screens) -> list[str]:
    """What went wrong beside requests to a server that was not there."""
    return [fault for fault in screens.faults if "ERR_" not in fault]


def test_the_page_says_that_the_server_is_gone_and_comes_back_by_itself(browser: object, tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    (tmp_path / "shop.py").write_text(GATED)
    with serving(shell, "shop:graph") as (process, url):
        httpx2.post(f"{url}/api/runs", json={"graph": "gated", "input": "bees", "run_id": "one"}, timeout=60)
        shell.wait_for("began", 0)
        screens = Screens(browser, url)  # type: ignore[arg-type]
        page = screens.open("/runs/one")
        page.wait_for_selector("#a-status:text-is('running')")
        kill(process, page)
    (tmp_path / "go").touch()
    with serving(shell, "shop:graph", port=int(url.rpartition(":")[2])):
        page.wait_for_selector("#a-status:text-is('completed')")
        page.wait_for_selector("#a-cards .answer:has-text('BEES')")
        page.wait_for_selector("#link:text-is('')", state="attached")
        assert gone_faults(screens) == []
        screens.close()


def test_a_question_outlives_the_server_and_is_answered_when_it_is_back(browser: object, tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    (tmp_path / "shop.py").write_text(ASKING)
    with serving(shell, "shop:graph") as (process, url):
        body = {"graph": "asking", "input": "bees", "run_id": "one", "wait": True}
        httpx2.post(f"{url}/api/runs", json=body, timeout=60)
        screens = Screens(browser, url)  # type: ignore[arg-type]
        page = screens.open("/runs/one")
        page.wait_for_selector(CARD)
        kill(process, page)
        page.click(f"{CARD} >> text=Approve")
        page.wait_for_selector("#questions .outcome:has-text('does not answer')")
    with serving(shell, "shop:graph", port=int(url.rpartition(":")[2])):
        page.wait_for_selector("#link:text-is('')", state="attached")
        assert page.inner_text("#a-status") == "paused"
        page.click(f"{CARD} >> text=Approve")
        page.wait_for_selector("#a-status:text-is('completed')")
        assert gone_faults(screens) == []
        screens.close()


def test_a_reply_that_the_server_took_with_it_is_written_again_and_shown_once(browser: object, tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    (tmp_path / "shop.py").write_text(WRITING)
    words = ("shop:graph", "--model", "shop:model")
    with serving(shell, *words) as (process, url):
        httpx2.post(f"{url}/api/runs", json={"graph": "writing", "input": "x", "run_id": "one"}, timeout=60)
        screens = Screens(browser, url)  # type: ignore[arg-type]
        page = screens.open("/runs/one")
        page.wait_for_selector("#reply-text:text-is('Once upon ')")
        kill(process, page)
    with serving(shell, *words, port=int(url.rpartition(":")[2])):
        page.wait_for_selector("#link:text-is('')", state="attached")
        page.wait_for_selector("#reply-text:text-is('Once upon ')")
        (tmp_path / "go").touch()
        page.wait_for_selector("#a-status:text-is('completed')")
        page.wait_for_selector("#a-cards .answer:has-text('Once upon a time')")
        page.wait_for_selector("#reply", state="hidden")
        assert gone_faults(screens) == []
        screens.close()


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds(screens: Screens, served: Api, size: tuple[int, int], theme: str) -> None:
    start(served, "one")
    page = screens.open("/runs/one", size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    assert serious_faults(page) == []
