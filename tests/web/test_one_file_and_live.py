"""The one-file page and the live page of one run: the same modules over two sources, so both look and act alike."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.render.html import page as pages
from tests.web.api import Api
from tests.web.windows import Screens, start

if TYPE_CHECKING:
    from playwright.sync_api import Page

MODULES = Path(pages.__file__).parent / "modules"
HIGH, BAR = 800, 52
"""Heights of a window, and of the bar that the live page has at its top, pixels."""
TABS = ("step", "state", "model", "tools", "run")
ONLY_LIVE = ".notes, .source"
"""What only a server has: the form of a note, and the source of functions."""
TOLERATED = 0.001
"""The part of the pixels that may differ: edges that are half transparent."""


def sent(served: Api, run_id: str, *, approve: bool = True) -> None:
    """A run that sent its letter, or was not allowed to, and ended."""
    start(served, run_id)
    (question,) = served.get(f"runs/{run_id}")["waiting"]
    answer = {"approve": True} if approve else {"deny": {"reason": "not before noon"}}
    served.post(f"runs/{run_id}/answer", question=question["id"], digest=question["digest"], **answer)
    assert served.settled(run_id)["status"] == "completed"


@pytest.mark.full
def test_the_script_of_the_one_file_page_is_made_of_the_modules_that_the_server_serves(served: Api) -> None:
    sent(served, "one")
    taken = []

    def served_text(name: str) -> str:
        answer = served.client.get(f"/static/modules/{name}.js")
        assert answer.content == (MODULES / f"{name}.js").read_bytes(), name
        taken.append(name)
        return answer.text

    file = served.client.get("/api/runs/one/page.html").text
    assert f"<script>{pages.bundle('frozen', served_text)}</script>" in file
    shared = {*taken} - {"frozen", "source"}
    assert {"page", "view", "step_list", "picture", "detail", "keys", "time_axis"} <= shared
    live, waiting = set[str](), ["/static/run_screen.js"]
    while waiting:
        path = waiting.pop()
        if path not in live:
            live.add(path)
            text = served.client.get(path).text
            waiting += [
                str(Path(path).parent / name) for name in re.findall(r'(?:from|^import) "\./([^"]+)";', text, re.M)
            ]
    assert {f"/static/modules/{name}.js" for name in shared} <= live
    style = re.search(r"<style>(.*?)</style>", file, re.DOTALL)
    assert style is not None
    assert served.client.get("/static/page.css").text == style[1]


@pytest.fixture
def both(screens: Screens, served: Api, request: pytest.FixtureRequest) -> tuple[Page, Page]:
    """The one-file page and the live page of a run that has ended."""
    given = getattr(request.node, "callspec", None)
    chosen = {} if given is None else given.params
    sent(served, "one", approve=chosen.get("approve", True))
    look = {"color_scheme": chosen.get("theme", "light"), "reduced_motion": "reduce"}
    file = screens.open("/api/runs/one/page.html", (1400, HIGH), **look)
    live = screens.open("/runs/one", (1400, HIGH + BAR), **look)
    hidden = f"{ONLY_LIVE} {{ display: none !important }}"
    live.evaluate(
        "(css) => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css); "
        "document.adoptedStyleSheets = [sheet]; }",
        hidden,
    )
    return file, live


def said(page: Page, selector: str) -> list[str]:
    """The texts of elements that can be seen."""
    return [one.inner_text() for one in page.locator(f"{selector} >> visible=true").all()]


@pytest.mark.browser
@pytest.mark.parametrize("approve", [True, False])
def test_both_have_the_same_steps_panels_and_texts(both: tuple[Page, Page], approve: bool) -> None:
    file, live = both
    for selector in ("#a-run h1", "#a-facts", "#a-why", "#a-cards", "#a-rows [role=treeitem]", "#a-chips", ".tabs"):
        assert said(file, selector) == said(live, selector), selector
        assert said(live, selector), selector
    drawn = "[...document.querySelectorAll('#a-canvas [id]')].map((one) => `${one.id} ${one.getAttribute('class')}`)"
    assert file.evaluate(drawn) == live.evaluate(drawn)
    steps = file.locator("#a-rows [role=treeitem]").count()
    seen = set()
    for number in range(steps):
        for tab in TABS:
            for page in both:
                page.locator("#a-rows [role=treeitem]").nth(number).click()
                page.click(f"#a-tab-{tab}")
            panels = [said(page, "#a-panel") for page in both]
            assert panels[0] == panels[1], (number, tab)
            assert file.evaluate("location.hash") == live.evaluate("location.hash")
            seen.add(panels[0][0])
    assert len(seen) > steps, "each tab of each step says something of its own"


@pytest.mark.browser
def test_both_have_the_same_keys_which_do_the_same(both: tuple[Page, Page]) -> None:
    file, live = both
    for keys in ("Home", "j", "j", "ArrowDown", "2", "k", "x", "X", "+", "-", "0", "End", "3", "5", "f", "r", "t", "s"):
        for page in both:
            page.keyboard.press(keys)
        for selector in ("#a-rows [role=treeitem]", "#a-panel", "#a-moment"):
            assert said(file, selector) == said(live, selector), (keys, selector)
        assert file.evaluate("location.hash") == live.evaluate("location.hash"), keys
    for page in both:
        page.keyboard.press("/")
        page.keyboard.type("send_email")
    assert said(file, "#a-rows [role=treeitem]") == said(live, "#a-rows [role=treeitem]")
    assert said(file, "#a-found") == said(live, "#a-found")
    lists = []
    for page in both:
        page.keyboard.press("Escape")
        page.locator("#a-rows").focus()
        page.keyboard.press("?")
        lists.append(dict(zip(said(page, "dialog dt"), said(page, "dialog dd"), strict=True)))
    assert lists[0]
    assert lists[0].items() <= lists[1].items(), "the live page has these keys and more"
    more = [*(lists[1].keys() - lists[0].keys())]
    assert sorted(more) == sorted(["a d e", "g r", "g i", "g w", "g g", "g e", "g c", "Ctrl K"])


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_look_the_same(both: tuple[Page, Page], theme: str, tmp_path: Path) -> None:
    both[1].evaluate("document.getElementById('a-actions').replaceChildren()")  # its buttons make the heading higher
    for tab in ("step", "model", "run"):
        pictures = []
        for name, page in zip(("file", "live"), both, strict=True):
            page.locator("#a-rows [role=treeitem]").nth(1).click()
            page.click(f"#a-tab-{tab}")
            page.mouse.move(1, 1)
            pictures.append(page.locator("#a-panes").screenshot(path=tmp_path / f"{name}_{tab}.png"))
        found = compared(both[1], *pictures)
        assert found["sizes"][0] == found["sizes"][1]
        assert min(found["sizes"][0]) > 300
        assert found["others"] <= TOLERATED * found["sizes"][0][0] * found["sizes"][0][1], tab
        assert found["colours"] > 20, "something is on it"
        assert (found["ground"] > 128) == (theme == "light")


COMPARED = """
async (addresses) => {
  const pictures = await Promise.all(addresses.map(async (address) => {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    return canvas.getImageData(0, 0, image.width, image.height);
  }));
  const [one, other] = pictures.map((picture) => picture.data), seen = new Map();
  let others = 0;
  for (let at = 0; at < one.length; at += 4) {
    others += [0, 1, 2].some((channel) => Math.abs(one[at + channel] - other[at + channel]) > 24);
    seen.set(one[at], (seen.get(one[at]) ?? 0) + 1);
  }
  const ground = [...seen].sort((a, b) => b[1] - a[1])[0][0];
  return { sizes: pictures.map((picture) => [picture.width, picture.height]), others, colours: seen.size, ground };
}
"""


def compared(page: Page, *pictures: bytes) -> Any:
    """How two pictures differ: their sizes, how many pixels are others, and what is on the first."""
    return page.evaluate(COMPARED, [f"data:image/png;base64,{b64encode(one).decode()}" for one in pictures])
