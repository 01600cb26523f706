"""The source of the function behind a step, in a real browser: text with its lines, whatever the source contains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator import Graph, node
from orchestrator.nodes import Confirm
from tests.web.api import Api, Note, api
from tests.web.windows import Screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@node
def fails(state: Note) -> dict[str, object]:
    """</pre><script>window.ran = 1</script><img src=x onerror="window.ran = 1">, and \u202e at the end."""
    raise ValueError("no parts")


broken = Graph(
    name="broken", state=Note, input="topic", output="parts",
    nodes={"ask": Confirm(prompt="Go on?"), "fails": fails},
    edges="START -> ask\nask -> fails : approved\nask -> END : denied\nfails -> END",
)  # fmt: skip


def approve(served: Api) -> None:
    """Answer the question of the run."""
    question = served.get("questions")["questions"][0]["question"]
    served.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
    served.settled("one")


def test_a_step_shows_the_source_of_its_function_with_the_line_that_failed(browser: Browser) -> None:
    with api(broken, settings={"sources": True}) as served:
        served.start("broken", run_id="one")
        approve(served)
        screens = Screens(browser, served.url)
        page = screens.open("/runs/one")
        page.click("#a-panel .source summary")
        page.wait_for_selector("#a-panel .source .code")
        assert page.inner_text("#a-panel .source .note").startswith(__file__)
        code = page.inner_text("#a-panel .source .code")
        assert "<script>window.ran = 1</script>" in code
        assert page.inner_text("#a-panel .source .at").strip().endswith('raise ValueError("no parts")')
        assert page.locator("#a-panel .source :is(script, img)").count() == 0
        assert page.evaluate("window.ran") is None
        page.click("#a-rows .row >> nth=0")  # the question: no function
        page.wait_for_selector("#a-panel h2:has-text('ask')")
        assert page.locator("#a-panel .source").count() == 0
        screens.close()
        assert not screens.faults


def test_what_a_server_refuses_is_said_in_place_of_the_source(browser: Browser) -> None:
    def authorize(request: object, action: str, run: object) -> str | None:
        return None if action == "show_source" else "ann"

    with api(broken, settings={"sources": True, "authorize": authorize}) as served:
        served.start("broken", run_id="one")
        approve(served)
        screens = Screens(browser, served.url)
        page = screens.open("/runs/one")
        page.click("#a-panel .source summary")
        page.wait_for_selector("#a-panel .source .note")
        assert page.locator("#a-panel .source .code").count() == 0
        assert "show_source" in page.inner_text("#a-panel .source .note")
        screens.close()
