"""The pictures of the live page in docs/pictures: each screen, light and dark, at three widths, over real runs.

`python -m tests.web.pictures` takes them, `python -m tests.web.pictures compare` those of one screen. It needs Chromium
and Playwright.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from random import Random

from playwright.sync_api import Page, sync_playwright

from orchestrator import Graph, Tool, ToolCall, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.notebooks.palette import indexed
from tests.web.api import Api, api
from tests.web.costs import called, spent, used
from tests.web.mail import LETTER
from tests.web.workers import announced, announced_dead, held, parked

PLACE = Path(__file__).parents[2] / "docs" / "pictures"
SIZES = {"": (1280, 800), "_390": (390, 844), "_2000": (2000, 1100)}
"""What a file's name says -> width and height, pixels."""


SCREENS = (("/runs", "runs", 0), ("/inbox", "inbox", 0), ("/runs/run-4", "run", 380),
           ("/runs/run-2#fork=11", "fork", 0), ("/workers", "workers", 0),
           ("/compare?runs=run-2,cheaper&step=1:/think", "compare", 400),
           ("/costs?since=2026-10-05&until=2026-11-04", "costs", 0),
           ("/replay?runs=run-0,run-1,run-2&graph=react-brief&batch=r1", "replay", 0),
           ("/graphs", "graphs", -280), ("/graphs/react", "graph", 0),
           ("/compose?from=react", "compose", 160))  # fmt: skip
"""Address, name, and how much higher than others, pixels."""


def _tools() -> list[Tool]:
    @tool(risk="none")
    def search_web(query: str) -> str:
        """Search the web."""
        return "Sunny, 17 degrees; light wind from the west."

    @tool(risk="none")
    def fetch(url: str) -> str:
        """Fetch a page."""
        raise ConnectionError(f"no connection to {url}")

    @tool(risk="write")
    def send_email(to: str, subject: str, body: str) -> str:
        """Send an email."""
        return "sent"

    @tool(risk="dangerous")
    def run_shell(command: str) -> str:
        """Run a command."""
        return "done"

    return [search_web, fetch, send_email, run_shell]


def _call(thought: str, name: str, **args: str) -> Reply:
    usage = Usage(input_tokens=640, output_tokens=58, cost=0.0031)
    return Reply(text=thought, tool_calls=(ToolCall(id=name, name=name, arguments={**args}),), usage=usage)


def _says(text: str) -> Reply:
    return Reply(text=text, usage=Usage(input_tokens=812, output_tokens=41, cost=0.0036))


RUNS = [
    ("Do I need an umbrella in Oslo today?", [
        _call("I look up the weather first.", "search_web", query="weather Oslo today"),
        _says("No: it is sunny in Oslo today, 17 degrees with a light wind."),
    ]),
    ("Fetch the list of members", [
        _call("The list is on their page.", "fetch", url="https://members.example"),
        _says("I could not fetch it: there is no connection to the page."),
    ]),
    ("Which of the three coffee machines suits an office of twenty?", [
        _call("I compare the offers.", "search_web", query="coffee machine offers"),
        _call("Now what twenty people drink.", "search_web", query="espresso office of twenty"),
        _says("The second one: it makes two cups at a time, and its service is included for three years."),
    ]),
    ("Free some space on the build machine", [
        _call("The images of last month can go.", "run_shell", command="docker image prune --all --filter until=720h"),
    ]),
    ("Where is the parcel of Ms Fischer?", [
        _call("The parcel left on Thursday. She wrote twice, so I answer her before noon.", "send_email",
              to="fischer@example.com", subject="Your parcel", body=LETTER),
    ]),
]  # fmt: skip


ASKED = "Which of the two cheaper coffee machines suits an office of twelve?"
CHEAPER = [
    _call("I compare the offers of the cheaper ones.", "search_web", query="cheap coffee machine offers"),
    _says("The first one: it makes a cup at a time, which does for twelve people, and costs half as much."),
]


def main(only: Sequence[str] = ()) -> None:
    """Take all pictures, or those of some screens."""
    replies: list[Reply] = []
    graph: Graph = react(tools=_tools())
    with api(
        graph,
        react(tools=_tools(), name="react-brief", system="Answer in one short sentence."),
        model=ScriptedModel(lambda request: replies.pop(0)),
    ) as served:
        for number, (question, said) in enumerate(RUNS):
            replies[:] = said
            labels = {"customer": "acme" if number % 2 else "globex"}
            served.post("runs", 201, graph="react", input=question, run_id=f"run-{number}", labels=labels, wait=True)
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for path, name, more in SCREENS:
                if only and name not in only:
                    continue
                if name == "workers":  # its runs are on no other picture
                    _announce(served)
                if name == "replay":
                    served.post("replays", 201, runs=["run-0", "run-2"], batch="r1", graph="react-brief")
                    served.post("replays", 201, runs=["run-1"], batch="r1")
                    until = time.monotonic() + 60
                    while served.get("replays?runs=run-0,run-1,run-2&batch=r1")["going"]:
                        assert time.monotonic() < until, "the replays have not ended after a minute"
                        time.sleep(0.05)
                if name == "compare":
                    replies[:] = CHEAPER
                    served.post("runs", 201, graph="react", input=ASKED, run_id="cheaper", wait=True)
                if name == "costs":
                    _spend(served)
                for (size, (width, height)), theme in itertools.product(SIZES.items(), ("light", "dark")):
                    page = browser.new_page(
                        viewport={"width": width, "height": height + more}, reduced_motion="reduce",
                        color_scheme="dark" if theme == "dark" else "light",
                    )  # fmt: skip
                    _take(page, served.url + path, PLACE / f"live_{name}{size}_{theme}.png")
            browser.close()


def _announce(served: Api) -> None:
    """Workers in every state, and a parked run."""
    said = {"graphs": ["invoice", "triage"], "slots": 20, "version": "0.1.0"}
    one = announced(served, "1f0c8a77d2e4", host="web-1", pid=4711, worker=said | {"started": 1.0})
    draining = said | {"started": 2.0, "draining": True}
    announced(served, "77ab10c2f9d0", host="web-2", pid=812, worker=draining)
    announced(served, "b2944e6a0c15", ttl=0.01, host="web-3", pid=930, worker=said)
    dead = announced_dead(served, "9b3e5d10c6aa", host="web-1", worker=said)
    held(served, one, "order-17", "order-18", graph="react")
    held(served, dead, "order-19", graph="react")
    fault = "ConnectionError: no connection to https://models.example"
    parked(served, "order-12", fault, graph="react", question="Does the order of Mr Weber fit the stock?")


def _spend(served: Api) -> None:
    """Runs of a month."""
    chance = Random(7)
    prices = {"gpt-5-mini": 1.2e-6, "claude-haiku": 3e-6, "qwen3-14b": 0.0}
    for number in range(300):
        day = date(2026, 10, 5) + timedelta(
            days=chance.choice([0, 1, 2, 3, 4, 7]) + 7 * chance.randrange(5) - number // 150
        )
        if not date(2026, 10, 5) <= day <= date(2026, 11, 4):
            continue
        model, tokens = chance.choice([*prices]), chance.randrange(800, 40_000)
        failed = int(chance.random() < 0.15)
        spent(
            served, f"order-{100 + number}", day.isoformat(), used(model, tokens, tokens * prices[model]),
            called("search_web", chance.randrange(1, 5), failed), graph=chance.choice(["react", "triage", "invoice"]),
            status=chance.choice(["completed"] * 12 + ["failed"]), seconds=2 + 60 * chance.random() ** 3,
            labels={"customer": chance.choice(["acme", "globex", "initech"])},
        )  # fmt: skip


def _take(page: Page, address: str, file: Path) -> None:
    """Take one picture, with a palette: a third of the bytes."""
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    if "#fork" in address:
        page.wait_for_selector("dialog.go-on .effects li")
        page.fill("[data-field=result]", "Three offers: 340, 420 and 510 euros. The second one has a service contract.")
        page.wait_for_timeout(600)
        page.wait_for_selector("dialog.go-on .effects li")
    elif "/runs/" in address:
        page.wait_for_selector("#questions article.card")
    elif "/compose" in address:
        _compose(page)
    page.evaluate("scrollTo(0, 0)")
    file.write_bytes(indexed(page.screenshot()))
    page.close()


def _compose(page: Page) -> None:
    """Add a router and a confirmation, as a person does."""
    for kind in ("route", "confirm"):
        page.wait_for_selector("html[data-checked=yes]")
        page.click(f"[data-kind={kind}]")
        page.click("#adding button.first")
    page.wait_for_selector("html[data-drawn=yes]")
    page.click("#try")
    page.fill("#trial input", ASKED)


if __name__ == "__main__":
    main(sys.argv[1:])
