"""What stands where on the screens: nothing covers, cuts or pushes what is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphs.chat import graph as chat
from graphs.plan_and_solve import graph as plan_and_solve
from orchestrator import Graph, OfflineModel
from orchestrator.nodes import Confirm
from tests.support.executors import Log, count
from tests.web.api import Api, api, held, plain
from tests.web.windows import Screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def served() -> Iterator[Api]:
    with api(chat, plan_and_solve, plain, model=OfflineModel()) as found:
        yield found


def size_of_texts(page: Page) -> float:
    """The size of the smallest text of the picture, in pixels of the screen."""
    size = page.evaluate("""() => {
      const svg = [...document.querySelectorAll("svg.agent-graph")].find((one) => one.getBoundingClientRect().width);
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const sizes = [...svg.querySelectorAll("text")].map((one) => parseFloat(getComputedStyle(one).fontSize));
      return scale * Math.min(...sizes);
    }""")
    return float(size)


@pytest.mark.parametrize("graph", ["chat", "plan_and_solve"])
@pytest.mark.parametrize("width", [390, 1440, 2000])
def test_the_texts_of_a_picture_that_fits_can_be_read(screens: Screens, served: Api, graph: str, width: int) -> None:
    served.post("runs", 201, graph=graph, input="What is 20+(2*4)?", run_id="r", wait=True)
    page = screens.open("/runs/r", size=(width, 900))
    page.click("#a-view-graph")  # the run of a chat opens with what was said
    assert size_of_texts(page) >= 8.99
    page.click("#a-fit")
    assert size_of_texts(page) >= 8.99


def test_a_reply_under_way_moves_nothing(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="r")
    page = screens.open("/runs/r")
    top = "document.getElementById('a-rows').getBoundingClientRect().top"
    before = page.evaluate(top)
    page.evaluate("""document.getElementById("reply-text").textContent = "word ".repeat(100)""")
    page.evaluate("document.getElementById('reply').hidden = false")
    assert page.locator("#reply").is_visible()
    assert page.evaluate(top) == before


def test_the_button_that_goes_on_covers_nothing_of_a_step(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="r")
    page = screens.open("/runs/r#step=1")
    page.wait_for_selector(".panel .go button")
    overlaps = page.evaluate("""() => {
      const go = document.querySelector(".panel .go button").getBoundingClientRect();
      return [...document.querySelectorAll(".panel > :not(.go)")].map((one) => one.getBoundingClientRect())
        .filter((one) => one.width && one.top < go.bottom && one.bottom > go.top)
        .filter((one) => one.left < go.right && one.right > go.left).length;
    }""")
    assert overlaps == 0


def test_the_ends_of_the_time_axis_do_not_overlap(screens: Screens, served: Api) -> None:
    served.start("plain", run_id="r")
    page = screens.open("/runs/r", size=(1440, 900))
    apart = page.evaluate("""() => {
      const scale = document.querySelector(".scale");
      const spans = [...scale.children].filter((one) => one.matches("span:not(.cursor, .gap)"));
      spans.at(-1).textContent = "29 min 24 s";
      const shown = spans.map((one) => one.getBoundingClientRect()).filter((one) => one.width);
      return shown.length < 2 || shown[0].right <= shown.at(-1).left;
    }""")
    assert apart


def test_the_first_difference_stays_on_one_line_at_390_pixels(screens: Screens, served: Api) -> None:
    for run_id, text in (("a", "bees"), ("b", "wasps " * 40)):
        served.post("runs", 201, graph="plain", input=text, run_id=run_id, wait=True)
    page = screens.open("/compare?runs=a,b", size=(390, 844))
    box = page.locator("#first").bounding_box()
    assert box is not None
    assert box["height"] < 44
    assert box["x"] + box["width"] <= 390


@pytest.mark.parametrize("width", [390, 1440])
def test_the_pictures_of_graphs_can_be_read_too(screens: Screens, served: Api, width: int) -> None:
    page = screens.open("/compose?graph=chat", size=(width, 900))
    page.wait_for_selector("#canvas svg.agent-graph")
    assert size_of_texts(page) >= 8.99
    page = screens.open("/graphs/chat", size=(width, 900))
    page.wait_for_selector("#canvas svg.agent-graph")
    assert size_of_texts(page) >= 8.99
    left, right = page.evaluate("""(() => {
      const [one, frame] = ["#node-START", "#canvas"].map((at) => document.querySelector(at).getBoundingClientRect());
      return [one.left - frame.left, frame.right - one.right];
    })()""")
    assert min(left, right) > 0  # a picture that does not fit begins at its first node
    before = size_of_texts(page)
    page.click("#larger")
    assert size_of_texts(page) > before
    page.click("#fit")
    assert size_of_texts(page) == before
    fills = "[...document.querySelectorAll('.edge path')].map((one) => getComputedStyle(one).fill)"
    assert "rgb(0, 0, 0)" not in page.evaluate(fills)  # lines, and no areas between them
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_runs_to_choose_from_cover_nothing_at_390_pixels(screens: Screens, served: Api) -> None:
    served.post("runs", 201, graph="plain", input="wasps and bees " * 20, run_id="r" * 100, wait=True)
    page = screens.open("/compare", size=(390, 844))
    covered = page.evaluate("""() => {
      const parts = [...document.querySelectorAll(".choose label > *")].map((one) => one.getBoundingClientRect());
      const beside = (one, other) => one.left < other.right - 1 && other.left < one.right - 1;
      const over = (one, other) => one.top < other.bottom - 1 && other.top < one.bottom - 1;
      return parts.some((one, at) => parts.slice(at + 1).some((other) => beside(one, other) && over(one, other)));
    }""")
    assert not covered
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_was_saved_is_no_draft_of_an_older_text(browser: Browser, tmp_path: Path) -> None:
    with api(plain, settings={"save_graphs": tmp_path}) as found:
        text = found.get("graphs/plain")["yaml"].replace("name: plain", "name: mine")
        found.post("graphs/save", 201, name="mine", text=text)
        screens = Screens(browser, found.url)
        page = screens.open("/compose?graph=mine")
        page.on("dialog", lambda one: one.accept())
        page.fill("#text", text + "\n# more\n")
        page.wait_for_timeout(300)
        page.click("#save")
        page.wait_for_selector("#notes >> text=Saved as mine.yaml.")
        page.fill("#text", text + "\n# more\n# and more\n")
        page.wait_for_timeout(600)
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.inner_text("#notice").strip() == "This is your draft."
        screens.close()


ASKING = Graph(
    name="asking", state=Log, nodes={"confirm": Confirm(prompt="Count?"), "count": count}, output="n",
    edges="START -> confirm\nconfirm -> count : approved\nconfirm -> END : denied\n"
    "count -> count : again\ncount -> END : enough",
)  # fmt: skip


def test_the_number_of_times_stands_apart_from_the_label_of_its_edge(browser: Browser) -> None:
    with api(ASKING) as found:
        found.post("runs", 201, graph="asking", input={"until": 5}, run_id="r", wait=True)
        screens = Screens(browser, found.url)
        page = screens.open("/runs/r")
        page.click("#questions >> text=Approve")
        for _ in ("drawn before the edge was taken", "and after it"):
            page.wait_for_selector("#a-canvas .times:has-text('×4')")
            labels = page.locator("#a-canvas .edge .label").all_text_contents()
            assert ["again", "×4"] in [text.split() for text in labels]
            page.reload()
        screens.close()
        assert not screens.faults


def be(page: Page, state: str) -> None:
    """Make a window visible, or hidden."""
    page.evaluate(
        "state => { Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        state,
    )


@pytest.mark.parametrize("meanwhile", ["seen", "hidden", "offline"])
def test_nothing_says_running_when_a_run_has_ended(browser: Browser, meanwhile: str) -> None:
    with held() as (found, gate):
        screens = Screens(browser, found.url)
        page, runs = screens.open("/runs/one"), screens.open("/runs")
        page.wait_for_selector("#a-status:text-is('running')")
        runs.wait_for_selector("#runs .pill.running")
        for one in (page, runs):
            if meanwhile == "hidden":
                be(one, "hidden")
            if meanwhile == "offline":
                one.context.set_offline(True)
        found.portal.call(gate.go.set)
        assert found.settled("one")["status"] == "completed"
        for one in (page, runs):
            if meanwhile == "hidden":
                be(one, "visible")
            one.context.set_offline(False)
        page.wait_for_selector("#a-status:text-is('completed')")
        runs.wait_for_selector("#runs .pill.completed")
        assert page.locator("main :text('running'):visible").count() == 0
        assert "running" not in " ".join(page.locator("#a-canvas title").all_text_contents())
        assert runs.locator("#runs :text('running'):visible").count() == 0
        screens.close()
        assert not [one for one in screens.faults if "ERR_INTERNET_DISCONNECTED" not in one]


def test_the_screens_of_the_bar_fit_beside_a_full_inbox_at_390_pixels(screens: Screens, served: Api) -> None:
    page = screens.open("/costs", size=(390, 844))
    page.evaluate("Object.assign(document.getElementById('open-questions'), { hidden: false, textContent: '200+' })")
    assert page.locator(".top > nav").evaluate("(nav) => nav.scrollWidth - nav.clientWidth") <= 0
    page.click("summary[aria-label='More screens']")
    assert page.locator(".more nav a[aria-current]").inner_text() == "Costs"
