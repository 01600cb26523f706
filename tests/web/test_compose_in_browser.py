"""The editor of graphs in a real browser: text, colours, completion, problems, picture, and changes by choosing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.models import OfflineModel
from orchestrator.strategies.react import react
from tests.web.api import Api, api
from tests.web.hostile import HIDDEN, SCRIPTS
from tests.web.windows import Screens, in_themes, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

pytestmark = pytest.mark.browser

SIZES = [(390, 844), (1280, 900), (2560, 1300)]
SMALL = """\
name: letter
state:
  fields:
    question: str
    answer: {type: str, default: ""}
input: question
output: answer
nodes:
  write: {kind: complete, prompt: "{question}", result: answer}
  send: {kind: confirm}
edges: |
  START -> write -> send
  send -> END : approved
  send -> write : denied
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    """A server with one graph and the offline model."""
    with api(react(), model=OfflineModel()) as found:
        yield found


@pytest.fixture
def screens(browser: Browser, served: Api) -> Iterator[Screens]:
    """Windows on it, in which nothing may go wrong."""
    found = Screens(browser, served.url)
    yield found
    found.close()
    assert not found.faults


def edited(screens: Screens, text: str | None = None, path: str = "/compose", **options: Any) -> Page:
    """The editor, with a text that was checked."""
    page = screens.open(path, **options)
    checked(page)
    if text is not None:
        page.fill("#text", text)
        checked(page)
    return page


def read(page: Page) -> None:
    """Wait until the editor has read the newest text: it does so before the next frame."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def checked(page: Page) -> None:
    """Wait until the newest text is checked."""
    read(page)
    page.wait_for_selector("html[data-checked=yes]")


def drawn(page: Page) -> None:
    """Wait until the newest text is drawn."""
    read(page)
    page.wait_for_selector("html[data-drawn=yes]")


LINE = "document.getElementById('text').value.slice(0, document.getElementById('text').selectionStart).split('\\n')"
"""The lines of the text up to the caret."""
SIZE = "(svg => svg.getAttribute('width') / svg.viewBox.baseVal.width)(document.querySelector('#canvas svg'))"
"""How large the picture is shown."""
WATCH = """() => {
    window.written = [];
    const row = one => one.target.parentElement?.closest?.('.line')?.textContent;
    new MutationObserver(all => window.written.push(...all.map(row))).observe(
        document.getElementById('lit'), {characterData: true, childList: true, subtree: true});
}"""
"""Collects the lines that are drawn anew."""
PLACES = """() => [document.getElementById('text'), [...document.querySelectorAll('#lit .line')]
    .find(one => one.textContent.startsWith('line_135:'))].map(one => one.getBoundingClientRect())
    .map(one => [one.left, one.top])"""
"""Where the text area is, and a line below it."""
INNER = """(area => [area.scrollWidth - area.clientWidth, area.scrollHeight - area.clientHeight])(
    document.getElementById('text'))"""
"""How far the text area could scroll by itself."""
LIT = """() => [...document.querySelectorAll('#lit .line:not([hidden])')]
    .sort((one, other) => parseFloat(one.style.top) - parseFloat(other.style.top)).map(one => one.textContent)"""


LONG = "\n".join([
    "name: long", "state:", "  fields:", "    question: str", '    answer: {type: str, default: ""}', "input: question",
    "output: answer", "nodes:",
    *(f"  step_{one}:\n    kind: complete\n    prompt: 'On {{question}}: part {one}'\n    system: You answer.\n"
      f"    result: answer\n    retry: {{attempts: 3}}" for one in range(100)),
    "edges: |", "  START -> step_0", *(f"  step_{one} -> step_{one + 1}" for one in range(99)), "  step_99 -> END", "",
])  # fmt: skip
"""A graph of 100 nodes."""
PASTE = """text => {
    const other = document.createElement('textarea');
    document.body.append(other);
    other.value = text;
    other.select();
    document.execCommand('copy');
    other.remove();
    document.getElementById('text').focus();
    document.getElementById('text').select();
}"""
"""Has a text ready to be pasted over the one of the editor."""
TASKS = """() => {
    window.tasks = [];
    new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(one => one.duration)))
        .observe({type: 'longtask'});
}"""
"""Collects how long the browser's thread was busy without a pause, milliseconds, if it is 50 or more."""


def text_of(page: Page) -> str:
    return str(page.input_value("#text"))


def put_caret(page: Page, behind: str) -> None:
    """Put the caret behind the first place that has these words."""
    page.evaluate(
        "words => { const area = document.getElementById('text'), at = area.value.indexOf(words) + words.length;"
        " area.focus(); area.setSelectionRange(at, at); }",
        behind,
    )


def lit(page: Page) -> list[str]:
    """The lines that are drawn below the text area, from the top."""
    found: list[str] = page.evaluate(LIT)
    return found


def problems(page: Page) -> list[str]:
    """The problems that are listed."""
    return page.locator("#problems .fault").all_inner_texts()


def state(page: Page) -> str:
    return page.inner_text("#state")


# -- the text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        "\n".join(SCRIPTS),
        "\n".join(f"key: {one}" for one in SCRIPTS),
        "\n".join(
            f"edges: |\n  a -> b : {one}" for one in (HIDDEN.replace("\r", ""), "\u05d0\u05d1 abc \u05d2", "\u202eabc")
        ),
        "a: \"open\n\n  still: 'x\n\" # over\nb: 'it''s'\nc: >-\n  text {slot}\n d: 1\n\t\ttabs",
        "x" * 30_000 + "\n" + "y: [" * 2_000 + "\n" + "\u4e2d\u6587 \U0001f468\u200d\U0001f469\u200d\U0001f467: z",
        "",
    ],
    ids=["graph", "scripts", "values", "hidden", "quotes", "long", "empty"],
)
def test_the_colours_below_say_exactly_the_text(screens: Screens, text: str) -> None:
    page = edited(screens)
    page.fill("#text", text)
    read(page)
    assert lit(page)[:80] == text_of(page).split("\n")[:80]
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.querySelectorAll('#lit :not(.line):not(span), iframe, img').length") == 0


def test_the_text_area_and_the_colours_have_the_same_metrics_also_where_lines_are_wide(screens: Screens) -> None:
    page = edited(screens)
    page.fill("#text", "\n".join(f"line_{number}: {'wide ' * 60}{number}" for number in range(200)))
    read(page)
    page.evaluate("document.getElementById('editor').scrollTo(700, 2600)")
    read(page)
    area, line = page.evaluate(PLACES)
    assert line[0] == pytest.approx(area[0], abs=0.5)
    assert line[1] - area[1] == pytest.approx(8 + 135 * 20, abs=0.5)
    inner = page.evaluate(INNER)
    assert inner[0] <= 0, "the text area scrolls by itself"
    assert inner[1] <= 0, "the text area scrolls by itself"


def test_only_lines_that_changed_are_coloured_again(screens: Screens) -> None:
    page = edited(screens, SMALL)
    page.evaluate(WATCH)
    put_caret(page, 'prompt: "')
    page.keyboard.type("x")
    read(page)
    assert {one for one in page.evaluate("window.written") if one} == {
        '  write: {kind: complete, prompt: "x{question}", result: answer}'
    }
    page.evaluate("window.written.length = 0")
    put_caret(page, "name: letter")
    page.keyboard.press("Enter")
    read(page)
    assert len({one for one in page.evaluate("window.written") if one}) <= 2


def test_undo_takes_back_words_as_everywhere(screens: Screens) -> None:
    page = edited(screens, SMALL)
    put_caret(page, "name: letter")
    page.keyboard.type("aaaaaaaa")
    assert "letteraaaaaaaa\n" in text_of(page)
    page.keyboard.press("Control+z")
    assert "letteraaaaaaa" not in text_of(page), "not letter by letter"
    assert text_of(page).startswith("name: letter")


def test_undo_takes_back_what_was_typed_completed_and_chosen(screens: Screens) -> None:
    page = edited(screens, SMALL)
    put_caret(page, "name: letter")
    page.keyboard.type("s")
    page.keyboard.press("Enter")
    page.keyboard.type("description: x")
    put_caret(page, "send -> write : ")
    page.keyboard.press("Control+Space")
    page.keyboard.press("Enter")
    assert "write : approveddenied" in text_of(page)
    before = text_of(page)
    page.click("[data-kind=confirm]")
    page.click("#adding button.first")
    assert "confirm: {kind: confirm}" in text_of(page) or "confirm:\n    kind: confirm" in text_of(page)
    page.keyboard.press("Control+z")
    assert text_of(page) == before, "one undo takes back one choice"
    for _ in range(20):
        page.keyboard.press("Control+z")
    assert "letters" not in text_of(page)


def test_enter_keeps_the_indentation_and_goes_deeper_behind_a_colon(screens: Screens) -> None:
    page = edited(screens, SMALL)
    put_caret(page, "send: {kind: confirm}")
    page.keyboard.press("Enter")
    page.keyboard.type("note:")
    page.keyboard.press("Escape")
    put_caret(page, "note:")
    page.keyboard.press("Enter")
    page.keyboard.type("kind: ask")
    assert "  send: {kind: confirm}\n  note:\n    kind: ask\n" in text_of(page)


# -- completion ---------------------------------------------------------------------------------------------------


def offered(page: Page, behind: str, typed: str = "") -> list[str]:
    """What is offered behind some words."""
    put_caret(page, behind)
    if typed:
        page.keyboard.type(typed)
    else:
        page.keyboard.press("Control+Space")
    if page.is_hidden("#completion"):
        return []
    return page.locator("#completion b").all_inner_texts()


def test_completion_offers_what_can_stand_there(screens: Screens) -> None:
    page = edited(screens, SMALL.replace("confirm}", "confirm, }"))
    assert offered(page, "START -> ") == ["write", "send", "END"]
    assert {"approved", "denied", "error"} <= set(offered(page, "send -> END : "))
    assert "confirm" in offered(page, "send: {kind: ")
    assert set(offered(page, "result: ")) == {"question", "answer"}
    assert set(offered(page, 'prompt: "{')) == {"question", "answer"}
    assert {"limits", "description"} <= set(offered(page, "  send -> write : denied\n"))
    assert {"show", "retry"} <= set(offered(page, "send: {kind: confirm, "))


def test_completion_by_keys_writes_the_word_and_tab_is_no_trap(screens: Screens) -> None:
    page = edited(screens, SMALL)
    assert offered(page, "send -> END : ")[0] != "denied"
    page.keyboard.press("Escape")
    assert page.is_hidden("#completion")
    assert page.evaluate("document.activeElement.id") == "text", "the first Escape closes the list"
    put_caret(page, "START -> write -> send")
    page.keyboard.type(" -> wr")
    assert page.locator("#completion b").all_inner_texts() == ["write"]
    area = page.locator("#text")
    chosen = page.locator("#completion [aria-selected=true]").get_attribute("id")
    assert area.get_attribute("aria-activedescendant") == chosen
    page.keyboard.press("Tab")
    assert "send -> write\n" in text_of(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") != "text"


# -- problems and picture -----------------------------------------------------------------------------------------


def test_problems_have_lines_and_a_click_goes_there(screens: Screens) -> None:
    page = edited(screens, SMALL)
    assert state(page) == "No problems, 2 nodes."
    drawn(page)
    page.fill("#text", SMALL.replace("send -> END", "send -> nowhere"))
    checked(page)
    assert "nowhere" in problems(page)[0]
    assert state(page) == "1 problem."
    assert page.locator("#canvas.stale svg").count() == 1, "the drawing of before stays, pale"
    page.click("#problems .fault button")
    assert page.evaluate(f"{LINE}.length") == 13
    assert page.locator("#gutter .fault").all_inner_texts() == ["13"]
    page.fill("#text", SMALL)
    checked(page)
    drawn(page)
    assert page.locator("#canvas.stale").count() == 0


def test_a_node_and_its_lines_lead_to_each_other_without_another_layout(screens: Screens) -> None:
    page = edited(screens, path="/compose?from=react")
    drawn(page)
    page.evaluate("window.kept = document.querySelector('#canvas svg')")
    page.click("#canvas [id='node-act.confirm'] .name")
    line = page.evaluate(f"{LINE}.length")
    lines = text_of(page).split("\n")
    assert lines[line - 1].strip().startswith("confirm:")
    assert lines[line - 1].startswith("        "), "the one inside of act"
    assert page.locator("#canvas .here").get_attribute("data-node") == "confirm"
    put_caret(page, "\n  observe:")
    page.wait_for_selector("#canvas .here[data-node=observe]")
    assert page.input_value("#node") == "observe"
    page.hover("#canvas #node-think .shape")
    assert page.evaluate("window.kept === document.querySelector('#canvas svg')")


def test_the_size_of_the_picture_stays_when_it_is_drawn_again(screens: Screens) -> None:
    page = edited(screens, SMALL)
    drawn(page)
    page.click("#larger")
    page.click("#larger")
    size = page.evaluate(SIZE)
    put_caret(page, "send: {kind: confirm}")
    page.keyboard.press("Enter")
    page.keyboard.type("last: {kind: ask, prompt: Why, answer: answer}")
    put_caret(page, "send -> END : approved")
    page.keyboard.press("Enter")
    page.keyboard.type("send -> last : error\nlast -> END")
    checked(page)
    drawn(page)
    assert page.locator("#canvas #node-last").count() == 1
    assert page.evaluate(SIZE) == pytest.approx(size)


def test_a_request_waits_for_the_one_before_and_the_newest_text_is_always_checked(screens: Screens) -> None:
    page = edited(screens, SMALL)
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.post_data or "") if one.url.endswith("/check") else None)
    put_caret(page, "name: letter")
    page.keyboard.type("abcdefghijklmnopqrstuvwxyz")
    checked(page)
    assert json.loads(sent[-1])["text"].startswith("name: letterabcdefghijklmnopqrstuvwxyz\n")
    assert len([one for one in sent if '"draw"' not in one]) < 26
    drawn(page)
    assert [one for one in sent if '"draw"' in one], "drawn once it has rested"
    assert json.loads(sent[-1])["text"] == text_of(page)


# -- changes by choosing ------------------------------------------------------------------------------------------


def test_from_react_to_a_variant_with_a_router_and_a_confirm_by_choosing(screens: Screens) -> None:
    page = edited(screens, path="/compose?from=react")
    page.click("[data-kind=route]")
    page.click("#adding button.first")
    checked(page)
    page.click("[data-kind=confirm]")
    page.click("#adding button.first")
    checked(page)
    assert state(page) == "No problems, 7 nodes."
    edges = text_of(page).rpartition("edges: |\n")[2]
    assert [line.strip() for line in edges.split("\n") if "route" in line or "confirm" in line] == [
        "START -> route",
        "route -> confirm : long",
        "confirm -> compact : approved",
        "confirm -> END : denied",
        "route -> compact : short",
    ]
    page.select_option("#selected [data-outcome=denied]", "think")
    checked(page)
    assert "confirm -> think : denied" in text_of(page)
    assert state(page) == "No problems, 7 nodes."
    page.select_option("#selected [data-outcome=denied]", "")
    checked(page)
    assert "denied" not in text_of(page).rpartition("edges: |\n")[2]


def test_a_newcomer_comes_from_react_to_a_variant_that_runs_in_a_few_actions(screens: Screens) -> None:
    page = screens.open("/compose")
    actions = 0

    def act(does: Callable[[], object]) -> None:
        nonlocal actions
        actions += 1
        does()

    act(lambda: page.select_option("#start", "from=react"))
    page.wait_for_url("**/compose?from=react")
    page.wait_for_selector("html[data-ready]")
    checked(page)
    for kind in ("route", "confirm"):
        act(page.locator(f"[data-kind={kind}]").click)
        act(lambda: page.click("#adding button.first"))
        checked(page)
    act(lambda: page.click("#try"))
    act(lambda: page.keyboard.type("What is 17 * 23? Think about it for long. " * 8))
    act(lambda: page.click("#trial form button.first"))
    page.wait_for_selector("#trial article.card")
    act(lambda: page.click("#trial article.card button.first"))
    page.wait_for_selector("#trial .pill.completed")
    assert actions <= 30
    assert page.inner_text("#trial .answer")
    page.click("#trial .status a")
    page.wait_for_url("**/try/runs/*")
    page.wait_for_selector("html[data-ready]")
    assert "approved" in page.inner_text("main")
    page.click("text=Back to the editor")
    page.wait_for_url("**/compose?from=react")
    page.wait_for_selector("html[data-ready]")
    assert "route -> confirm : long" in text_of(page), "the draft is still there"


def test_a_text_with_problems_is_not_tried(screens: Screens) -> None:
    page = edited(screens, SMALL.replace("send -> END", "send -> nowhere"))
    page.click("#try")
    assert "has problems" in page.inner_text("#trial")
    assert page.locator("#trial form").count() == 0
    page.fill("#text", SMALL)
    checked(page)
    assert page.locator("#trial form").count() == 1, "the form comes when the problems are gone"
    page.keyboard.press("Escape")


def test_a_name_that_is_taken_is_refused(screens: Screens) -> None:
    page = edited(screens, SMALL)
    page.click("[data-kind=ask]")
    page.fill("#adding-name", "send")
    page.click("#adding button.first")
    assert "cannot be the name" in page.inner_text("#notes")
    assert text_of(page) == SMALL


def test_all_of_it_by_keys(screens: Screens) -> None:
    page = edited(screens, SMALL)
    drawn(page)
    page.keyboard.press("Escape")
    page.focus("[data-kind=ask]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#adding-name")
    page.keyboard.type("why")
    page.keyboard.press("Enter")
    page.wait_for_selector("#adding", state="hidden")
    assert page.evaluate("document.activeElement.id") == "text", "at the new node"
    assert "why:" in page.evaluate(f"{LINE}.at(-1)") + text_of(page)
    page.keyboard.press("Control+Enter")
    assert page.is_visible("#trial")
    page.keyboard.press("Escape")
    assert page.is_hidden("#trial")
    page.focus("#node")
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("#canvas .here")
    assert page.evaluate("document.activeElement.id") == "node", "choosing a node moves no focus"


def test_a_text_of_100_nodes_is_edited_without_a_long_task(screens: Screens) -> None:
    page = screens.open("/compose", (1600, 1000))
    page.evaluate(PASTE, LONG)
    page.keyboard.press("Control+v")
    page.get_by_text("No problems, 100 nodes.").wait_for()  # until then the text before counts as checked
    drawn(page)
    assert state(page) == "No problems, 100 nodes."
    page.evaluate(TASKS)
    put_caret(page, "part 50")
    longest = []
    for _ in range(4):  # the machine may be doing something else
        page.evaluate("window.tasks.length = 0")
        for sign in " and more":
            page.keyboard.type(sign)
            checked(page)
        drawn(page)
        longest.append(max(page.evaluate("window.tasks"), default=0))
        if longest[-1] <= 100:
            break
    assert min(longest) <= 100, longest
    lit_lines = page.evaluate("document.querySelectorAll('#lit .line').length")
    assert lit_lines < 200, "only lines that are seen are drawn"


# -- the draft ----------------------------------------------------------------------------------------------------


def test_a_draft_is_there_after_a_reload_and_each_address_has_its_own(screens: Screens) -> None:
    page = edited(screens)
    page.on("dialog", lambda one: one.accept())
    page.fill("#text", SMALL)
    checked(page)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert text_of(page) == SMALL
    assert "your draft" in page.inner_text("#notice")
    page.select_option("#start", "from=react")
    page.wait_for_url("**/compose?from=react")
    page.wait_for_selector("html[data-ready]")
    assert text_of(page).startswith("name: react_variant\n")
    page.go_back()
    page.wait_for_selector("html[data-ready]")
    assert text_of(page) == SMALL
    page.click("#revert")
    assert text_of(page).startswith("name: my_graph\n")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.is_hidden("#notice")


def test_a_text_is_saved_and_replaces_another_one_only_when_a_person_says_so(browser: Browser, tmp_path: Path) -> None:
    with api(react(), model=OfflineModel(), settings={"save_graphs": tmp_path}) as found:
        windows = Screens(browser, found.url)
        page = edited(windows, SMALL)
        page.click("#save")
        page.wait_for_selector("#notes >> text=Saved as letter.yaml.")
        assert (tmp_path / "letter.yaml").read_text() == SMALL
        page.fill("#text", SMALL.replace("{kind: confirm}", "{kind: confirm, prompt: Sure}"))
        checked(page)
        with page.expect_response("**/api/graphs/save") as said:
            page.keyboard.press("Control+s")
        assert said.value.ok, said.value.text()
        other = edited(windows, SMALL)  # a window that knows of no file
        other.click("#save")
        other.wait_for_selector("dialog.replace")
        assert other.locator("dialog.replace .cut, dialog.replace .add").count() == 2
        other.click("dialog.replace >> text=Keep it")
        other.wait_for_selector("#notes >> text=Nothing was saved.")
        assert "Sure" in (tmp_path / "letter.yaml").read_text()
        other.click("#save")
        other.click("dialog.replace >> text=Replace it")
        other.wait_for_selector("#notes >> text=Saved as letter.yaml.")
        assert (tmp_path / "letter.yaml").read_text() == SMALL
        windows.close()
        assert [one for one in windows.faults if "409" not in one] == []


def test_without_a_folder_the_text_is_a_download(screens: Screens) -> None:
    page = edited(screens, SMALL)
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "letter.yaml"
    assert Path(download.value.path()).read_text() == SMALL


def test_leaving_with_changes_warns(screens: Screens) -> None:
    page = edited(screens)
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    put_caret(page, "name: my_graph")
    page.keyboard.type("x")
    page.goto(f"{screens.url}/runs")
    assert asked == ["beforeunload"]


# -- everywhere ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "theme"), in_themes(SIZES))
def test_no_serious_fault_that_axe_finds_at_any_width(
    screens: Screens, size: tuple[int, int], theme: str, tmp_path: Path
) -> None:
    page = edited(
        screens, path="/compose?from=react", size=size, color_scheme=theme, bypass_csp=True, reduced_motion="reduce"
    )
    page.click("[data-kind=route]")
    page.wait_for_selector("#adding-name")
    page.fill("#text", text_of(page).replace("-> read", "-> reed"))
    checked(page)
    put_caret(page, "START -> ")
    page.keyboard.press("Control+Space")
    page.screenshot(path=tmp_path / "compose.png")
    assert serious_faults(page) == []
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1], "the screen is wider than the window"
