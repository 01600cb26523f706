"""The page of a failed run, in a real browser: where it failed, and notes that are written there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator import Graph, node
from tests.web.api import Api, Note, api
from tests.web.hostile import HOSTILE
from tests.web.windows import SIZES, Screens, in_themes, serious_faults

pytestmark = pytest.mark.browser


@node(effect="pure")
def begins(state: Note) -> dict[str, object]:
    return {}


def price_of(thing: str) -> int:
    return {"tea": 2}[thing]


@node
def looks_up(state: Note) -> dict[str, object]:
    return {"parts": str(price_of(state.topic))}


shop = Graph(
    name="shop", state=Note, input="topic", output="parts", nodes={"begins": begins, "looks_up": looks_up},
    edges="START -> begins -> looks_up -> END",
)  # fmt: skip


@pytest.fixture
def served() -> Iterator[Api]:
    with api(shop) as found:
        found.start("shop", run_id="one")
        yield found


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_a_failed_run_opens_at_its_line_of_code_and_a_note_is_written_there(
    screens: Screens, served: Api, size: tuple[int, int], theme: str
) -> None:
    page = screens.open("/runs/one", size, color_scheme=theme)
    assert page.inner_text("#a-panel h2 .data") == "looks_up"
    assert 'return {"tea": 2}[thing]' in page.inner_text("#a-panel .place")
    page.fill("#a-panel .notes textarea", HOSTILE)
    page.fill("#a-panel [aria-label=Score]", "0.25")
    page.fill("#a-panel [aria-label='What the score measures']", "correctness")
    page.keyboard.press("Enter")
    page.wait_for_selector("#a-panel .note-card")
    (note,) = served.get("runs/one/notes")["notes"]
    assert (note["score"], note["name"]) == (0.25, "correctness")
    assert note["step"] == served.get("runs/one/history")["steps"][-1]["seq"]
    assert "correctness" in page.inner_text("#a-panel .note-card")
    assert page.input_value("#a-panel .notes textarea") == ""
    assert page.evaluate("window.pwned") is None
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("#a-tab-run")
    page.fill("#a-panel .notes textarea", "about the run")
    page.click("#a-panel .write-note button")
    page.wait_for_selector("#a-panel .note-card")
    assert page.inner_text("#a-facts").split("notes")[1].split() == ["2"]
    page.reload()
    page.wait_for_selector("#a-panel .note-card")
    for label in ("Delete", "Delete it?"):
        page.click(f"#a-panel .note-card button:text-is('{label}')")
    page.wait_for_selector("#a-panel .note-card", state="detached")
    assert [one["text"] for one in served.get("runs/one/notes")["notes"]] == [note["text"]]


def test_what_is_refused_says_why_and_keeps_what_was_written(screens: Screens, served: Api) -> None:
    page = screens.open("/runs/one")
    button, said = "#a-panel .write-note button", "#a-panel .write-note .bad-text"
    page.click(button)
    assert page.inner_text(said) == "Write a text, or give a score."
    page.fill("#a-panel [aria-label=Score]", "many")
    page.click(button)
    assert page.inner_text(said) == "The score is not a number."
    page.fill("#a-panel [aria-label=Score]", "")
    page.fill("#a-panel .notes textarea", "a long thought")
    served.client.delete("/api/runs/one")
    page.click(button)
    page.wait_for_selector(f"{said}:has-text('no run')")
    assert page.input_value("#a-panel .notes textarea") == "a long thought"
    screens.faults[:] = [one for one in screens.faults if "status of 404" not in one]
