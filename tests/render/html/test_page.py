"""The page as text: what it is made of, what it must not hold, how large it is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, Graph, Retry, node
from orchestrator.executor import Run
from orchestrator.render import RenderError, to_html
from orchestrator.render.html import step_data
from orchestrator.testing import MockClock
from orchestrator.views.overlay import Overlay
from tests.render.html.sample import EVIL, SECRET, Tour, run_count, run_forked, run_tour, tour

STRUCTURE = """\
main
  section.run Run tour
    header
      div.title
        h1
        div.actions
          span.bad-text status
        dl.facts
      p.why
      div.cards
    div.replay group Replay
      button First record
      button Step back
      button Play
      button Next step
      button Last record
      input Record
      output
      button
    div.panes
      section.steps Timeline
        div.bar
          input Search
          div.choices
            span.chips group Only steps that are
            button.chip
            label.chip
            span.zoom group Times
              button Shorter part of the time
              button Longer part of the time
              button All of the time
            span.note status
        div.head
        div.rows tree Steps
        p.none
      div.split separator Width of the steps
      section.picture Graph and transcript
        div.tools
          span.views group What to show
            button
            button
          span.sizes
            button
            button Smaller
            button Larger
            button
            button
        div.canvas region Picture of the graph
          svg
          svg
        div.talk region Transcript
      div.split separator Width of the details
      section.detail Step
        div.tabs tablist What to show
          button tab
          button tab
          button tab
          button tab
          button tab
        div.panel tabpanel
"""


class Page(HTMLParser):
    """The elements of a page, its ids, its addresses, what its scripts and styles hold."""

    KEPT = (
        "main",
        "header",
        "section",
        "div",
        "button",
        "h1",
        "h2",
        "dl",
        "p",
        "input",
        "output",
        "label",
        "svg",
        "span",
    )
    LEAVES = ("svg", "h1", "h2", "label", "button", "p")
    VOID = ("meta", "input", "br", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.ids: list[str] = []
        self.urls: list[str] = []
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.policy = ""
        self._open: list[tuple[str, bool]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.ids += [at["id"]] if "id" in at else []
        self.urls += [at[name] for name in ("src", "href", "xlink:href", "action", "data", "srcset") if name in at]
        self.handlers += [name for name in at if name.startswith("on") or name == "style"]
        if at.get("http-equiv") == "Content-Security-Policy":
            self.policy = at["content"]
        shown = tag in self.KEPT and any(name == "main" for name, _ in self._open) | (tag == "main")
        shown = shown and not any(name in self.LEAVES or at == "head" for name, at in self._open)  # type: ignore[comparison-overlap]
        if shown:
            kind = at.get("class", "").split(" ")[0]
            words = [f"{tag}.{kind}" if kind and tag != "svg" else tag, at.get("role", ""), at.get("aria-label", "")]
            depth = sum(kept for _, kept in self._open)
            self.lines.append("  " * depth + " ".join(word for word in words[: 1 if tag == "svg" else 3] if word))
        if tag not in self.VOID:
            self._open.append((tag, shown))
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            if self._open.pop()[0] == tag:
                break

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] in self.raw:
            self.raw[self._open[-1][0]][-1] += data


def data_of(text: str) -> Any:
    return json.loads(Page(text).raw["script"][0])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('runs')}/runs.db"


@pytest.fixture(scope="module")
def run(url: str) -> Run:
    return anyio.run(run_tour, url)


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return run.to_html()


def test_structure(page: str) -> None:
    found = Page(page)
    lines = [line for line in found.lines if line.strip() not in ("span", "span.scale")]
    assert "\n".join(lines) + "\n" == STRUCTURE
    assert len(found.ids) == len(set(found.ids))
    assert "b-slider" not in found.ids


def test_nothing_runs_but_the_script_and_nothing_is_loaded(page: str) -> None:
    found = Page(page)
    policy = dict(part.strip().split(" ", 1) for part in found.policy.split(";"))
    assert policy["default-src"] == "'none'"
    for name, kind, text in (
        ("script-src", "script", found.raw["script"][-1]),
        ("style-src", "style", found.raw["style"][0]),
    ):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'", kind
    assert len(found.raw["script"]) == 2
    assert len(found.raw["style"]) == 1
    assert not found.urls
    assert not found.handlers, "inline styles and handlers: the policy refuses them"
    assert not found.tags & {"img", "iframe", "object", "embed", "link", "base", "b", "a"}
    assert not re.search(
        r"\b(?:eval|innerHTML|outerHTML|insertAdjacentHTML|document\.write|fetch|XMLHttpRequest|import)\b",
        found.raw["script"][-1],
    )


def test_what_strangers_said_stays_data_and_secrets_are_blanked(page: str) -> None:
    found = data_of(page)[0]
    assert "window.pwned=1" in json.dumps(found)
    assert "<script>window" not in page
    assert "onerror" not in Page(page).handlers
    assert SECRET not in page
    assert "hunter2hunter2" not in page
    assert found["whole"][0]["password"] == ""
    assert found["steps"][0]["patch"]["password"] == ["=", "[redacted]"]
    assert found["steps"][0]["patch"]["big"] == ["=", str(2**60 + 1)]
    assert "\u202e" not in re.sub(r"<script type.*?</script>", "", page, flags=re.DOTALL)
    assert EVIL in [message["content"] for message in found["messages"].values()]


def test_what_the_data_tells_of_a_run(page: str, run: Run) -> None:
    found = data_of(page)[0]
    assert (found["graph"], found["run"], found["status"]) == ("tour", "tour", "completed")
    steps = found["steps"]
    assert found["counted"] == run.steps
    names = [step["node"] for step in steps]
    assert names[0] == "plan"
    assert sorted(names[1:7]) == ["look"] * 3 + ["search"] * 3
    assert names[7:] == ["grade", "again", "grade", "write", "publish"]
    searches = [step for step in steps if step["node"] == "search"]
    assert {steps[step["up"]]["node"] for step in searches} == {"look"}
    assert all(step["depth"] == 1 and step["calls"][0]["name"] == "look" for step in searches)
    plan, write, publish = steps[0], steps[-2], steps[-1]
    call = plan["calls"][0]
    assert [found["messages"][name]["role"] for name in call["messages"]] == ["system", "user"]
    assert call["result"]["text"].startswith("I say")
    assert write["attempt"] == 2
    assert write["retries"][0][0] == 1
    assert [wait[0] for wait in write["waits"]] == ["retry"]
    assert publish["asked"][0]["answer"]["type"] == "approve"
    assert publish["asked"][0]["by"].startswith("ann ")
    assert publish["waits"][0][0] == "person"
    assert [found["edges"][name] for name in steps[7]["left"]] == ["grade -> write : good"]
    assert [found["edges"][name] for name in steps[7]["took"]] == ["grade -> again : more"]
    assert found["began"]["edge-START--plan"] == [1]
    assert found["question"].startswith("What? ")
    assert found["limits"] == {"steps": 100}
    assert [step["name"][1] for step in steps if step["node"] == "look"] == ["one", "two", "three"]
    assert {tuple(step["name"]) for step in searches} >= {("look", "two", "look › search")}
    assert found["maps"][0]["items"] == {"0": "one", "1": "two", "2": "three"}
    assert steps[7]["came"].startswith("3 branches were joined")
    assert len(found["records"]) == found["head"]
    assert {step["part"] for step in steps} <= set(found["kinds"])


def test_every_part_that_a_moment_names_is_in_the_picture(page: str) -> None:
    ids = set(Page(page).ids)
    moments = data_of(page)[0]["picture"]["moments"]
    named = {part for _, changes in moments for part in changes}
    assert {f"a-{part}" for part in named} <= ids
    assert {f"ac-{part}" for part in named if "look." not in part} <= ids
    assert {f"a-{step['part']}" for step in data_of(page)[0]["steps"]} <= ids


@pytest.mark.full
def test_fifty_steps_are_small_and_pages_grow_with_their_runs(tmp_path: Path) -> None:
    runs = [anyio.run(run_count, f"sqlite:///{tmp_path}/{steps}.db", steps) for steps in (50, 150, 250)]
    sizes = [len(run.to_html().encode()) for run in runs]
    assert sizes[0] < 210_000
    assert sizes[2] - sizes[1] < 1.2 * (sizes[1] - sizes[0])


def test_two_runs_side_by_side(url: str, run: Run) -> None:
    one, other = run, anyio.run(partial(run_tour, url, "other", answer=False))
    text = one.to_html(other)
    found = Page(text)
    assert len(found.ids) == len(set(found.ids))
    assert {"a-slider", "b-slider", "together"} <= set(found.ids)
    assert [data["status"] for data in data_of(text)] == ["completed", "paused"]
    assert "differ where tour ran publish (step 12), which gave approved and other ran publish (step 12), which" in text
    assert found.urls == ["#step=12&b.step=12"]
    same = one.to_html(one)
    assert "Both took the same steps" in same


def test_a_graph_alone_and_what_has_no_journal() -> None:
    found = Page(to_html(tour()))
    assert "svg" in found.tags
    assert json.loads(found.raw["script"][0]) == []
    with pytest.raises(RenderError, match="give the run itself"):
        to_html(tour(), Overlay())


def test_any_moment_of_a_run(run: Run) -> None:
    for seq in range(1, run.seq + 1, 7):
        found = data_of(run.at(seq).to_html())[0]
        assert found["head"] == seq
        assert len(found["records"]) == seq


async def run_failing_often() -> Run:
    """Each attempt of a step fails in other words."""
    said = iter(range(1, 7))

    @node(retry=Retry(attempts=6, wait=0), effect="pure")
    async def fails(state: Tour) -> None:
        raise ConnectionError(f"number {next(said)}")

    graph = Graph(name="often", state=Tour, nodes={"fails": fails}, edges="START -> fails -> END")
    async with Executor(graphs=[graph]) as executor:
        return await executor.start(graph, {}, run_id="often")


def test_tracebacks_that_are_left_out_are_counted_and_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    run = anyio.run(run_failing_often)
    whole = data_of(run.to_html())[0]
    length = len(run.error.traceback)  # type: ignore[union-attr]
    monkeypatch.setattr(step_data, "_ALL_TRACES", 3 * length)
    found = data_of(run.to_html())[0]
    assert 0 < found["traces_left_out"] < 6
    traces, all_of_them = ([one[2] for one in page["steps"][0]["retries"]] for page in (found, whole))
    left_out = [one.get("left_out", False) for one in traces]
    assert left_out == sorted(left_out), "the first ones are there"
    assert [one["parts"] for one in traces if one.get("left_out")] == [[]] * sum(left_out)
    assert [one["place"] for one in traces] == [one["place"] for one in all_of_them]
    assert "in fails" in traces[-1]["place"]
    assert found["trace"] == whole["trace"], "the error of the run is there"
    assert "traces_left_out" not in whole


def test_a_fork_began_when_it_was_made_and_not_when_its_parent_did() -> None:
    clock = MockClock(idle=0.05)
    fork = clock.run(run_forked, clock)
    found = data_of(fork.to_html())[0]
    assert found["start"] + found["forked"] / 1000 == pytest.approx(fork.machine.created)
    assert found["forked"] >= 86_400_000
    second = found["steps"][1]
    assert second["t"][0] >= found["forked"], "it ran in the fork alone"
    assert "waits" not in second
    assert second["work"] < 60
    assert "forked" not in data_of(fork.at(2).to_html())[0]


def test_a_run_that_nobody_drives_is_interrupted_in_its_picture_too(run: Run) -> None:
    lost = Run(run.at(8).machine, run.definition, run._store, interrupted=True)
    found = data_of(lost.to_html())[0]
    assert found["status"] == "interrupted"
    marks = {part: mark for _, changes in found["picture"]["moments"] for part, mark in changes.items()}
    assert marks["run-status"][0] == "interrupted"
    assert any("interrupted" in mark[0].split() for part, mark in marks.items() if part.startswith("node-"))
    assert "interrupted" in {step["status"] for step in found["steps"]}
