"""Starting a run with options: the model, policy, limits and labels, in the API and on the page of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.testing import ScriptedModel
from tests.web.api import Api, api
from tests.web.orders import orders, thinks
from tests.web.windows import Screens, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "</textarea><img src=x onerror=alert(1)>"


def models() -> dict[str, Any]:
    return {
        "model": ScriptedModel(["usual"] * 9, name="usual-1"),
        "models": {"fast": ScriptedModel(["fast"] * 9, name="fast-1")},
    }


def asked(found: Api, run_id: str) -> list[str]:
    """The models that a run asked, by the names that they have themselves."""
    records = found.get(f"runs/{run_id}/records")["records"]
    return [one["name"] for one in records if one["type"] == "effect_intended" and one["kind"] == "model"]


def test_a_run_is_started_with_a_model_and_keeps_it_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    with api(thinks, store=store, **models()) as found:
        found.post("runs", 201, graph="thinks", input={"order_id": 1}, model="fast", run_id="a", wait=True)
        found.post("runs", 201, graph="thinks", input={"order_id": 1}, run_id="b", wait=True)
    with api(thinks, store=store, **models()) as found:
        for run_id in ("a", "b"):
            found.post(f"runs/{run_id}/send", event="more")
            found.settled(run_id)
        assert (found.get("runs/a")["output"], found.get("runs/b")["output"]) == ("fast", "usual")
        assert (asked(found, "a"), asked(found, "b")) == (["fast-1", "fast-1"], ["usual-1", "usual-1"])


def test_a_model_that_is_not_there_is_refused_at_its_field() -> None:
    with api(thinks, **models()) as found:
        said = found.post("runs", 422, graph="thinks", input={"order_id": 1}, model="fsat")
        assert said["errors"] == [{"field": "model", "message": "there is no model 'fsat' here: did you mean 'fast'?"}]
        assert found.get("runs")["runs"] == []


def test_what_a_graph_uses_is_named() -> None:
    with api(thinks, orders, **models()) as found:
        parts = found.get("graphs/thinks")["parts"]
        assert (parts["models"], parts["asks_default"], parts["choices"]) == (["usual-1"], True, ["fast"])
        assert found.get("graphs/orders")["parts"]["choices"] == []


def test_faults_of_the_input_are_told_by_field() -> None:
    with api(orders) as found:
        said = found.post("runs", 422, graph="orders", input={"order_id": "x", "items": "a"})
        assert [one["field"] for one in said["errors"]] == ["input.order_id", "input.items"]


def test_a_fork_names_its_model_and_takes_another_one() -> None:
    with api(thinks, **models()) as found:
        found.post("runs", 201, graph="thinks", input={"order_id": 1}, run_id="a", wait=True)
        parts = found.get("runs/a/fork/form?at=1")["parts"]
        assert (parts["models"], parts["choices"]) == (["usual-1"], ["fast"])
        fork = found.post("runs/a/fork", 201, at=1, model="fast", run_id="f")
        assert found.settled(fork["run_id"])["status"] == "paused"
        assert asked(found, "f") == ["fast-1"]
        assert found.get("runs/f/fork/form?at=1")["parts"]["models"] == ["fast (fast-1)"]
        found.post("runs/a/fork", 422, at=1, model="slow")
        found.post("runs/a/fork/preview", 422, at=1, model="slow")


@pytest.mark.browser
class TestOnThePage:
    @pytest.fixture
    def served(self) -> object:
        with api(orders, thinks, settings={"approve": "read"}, **models()) as found:
            yield found

    def filled(self, screens: Screens, graph: str, **fields: str) -> Page:
        page = screens.open(f"/graphs/{graph}")
        page.click("#options summary")
        for name, text in fields.items():
            page.fill(f'[data-field="{name}"]', text)
        return page

    def run(self, page: Page, served: Api) -> Any:
        page.click("#start button[type=submit]")
        page.wait_for_url("**/runs/*")
        return served.settled(page.url.rpartition("/")[2])

    def test_lists_are_lines_or_json(self, screens: Screens, served: Api) -> None:
        big = "12345678901234567890"
        page = self.filled(
            screens, "orders", order_id=big, items="red pen\n  ink  \n\n", sizes="[1, 2.50]", notes=HOSTILE
        )
        state = self.run(page, served)["state"]
        assert (state["order_id"], state["items"], state["sizes"]) == (int(big), ["red pen", "ink"], [1, 2.5])
        assert state["notes"] == HOSTILE

    def test_a_run_gets_its_options(self, screens: Screens, served: Api) -> None:
        page = self.filled(
            screens,
            "thinks",
            order_id="1",
            labels="team: ops\n__proto__=x",
            **{"limits.steps": "9", "limits.seconds": "7.5"},
        )
        page.check("[data-field=model] [value=fast]")
        page.check("[data-field=approve] [value=read]")
        assert "usual-1" in page.inner_text("#options .uses")
        run = self.run(page, served)
        assert asked(served, run["run_id"]) == ["fast-1"]
        assert run["labels"] == {"team": "ops", "__proto__": "x"}
        assert (run["limits"]["steps"], run["limits"]["seconds"]) == (9, 7.5)

    def test_descriptions_and_defaults_are_shown(self, screens: Screens, served: Api) -> None:
        page = self.filled(screens, "orders")
        assert "The number of the order." in page.inner_text("#fields")
        assert "What is ordered. One item a line, or JSON." in page.inner_text("#fields")
        assert page.get_attribute("[data-field=notes]", "placeholder") == 'default: "none"'
        assert page.get_attribute("[data-field=order_id]", "placeholder") == "needed"

    @pytest.mark.parametrize(
        ("field", "text", "says"),
        [
            ("order_id", "", "field required"),
            ("sizes", "1\ntwo", "line 2: a number is needed"),
            ("limits.steps", "0", "give a whole number of 1 or more"),
            ("limits.steps", "5000", "may lower steps"),
            ("labels", "ops", "Write each label as name: value"),
            ("run_id", "a b", "without spaces"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, screens: Screens, served: Api, field: str, text: str, says: str
    ) -> None:
        page = self.filled(screens, "orders", **{"order_id": "1", field: text})
        page.click("#start button[type=submit]")
        whole = says == "may lower steps"
        where = "#options > .options > .fault" if whole else f'dd:has([data-field="{field}"]) .fault'
        page.wait_for_selector(f"{where}:has-text('{says}')")
        assert page.url.endswith("/graphs/orders")
        screens.faults[:] = [one for one in screens.faults if "status of 4" not in one]

    @pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark"), (2000, "light")])
    def test_the_form_fits_and_can_be_read_by_all(self, browser: Browser, served: Api, width: int, theme: str) -> None:
        screens = Screens(browser, served.url)
        page = screens.open(
            "/graphs/orders", size=(width, 900), color_scheme=theme, bypass_csp=True, reduced_motion="reduce"
        )
        page.click("#options summary")
        assert serious_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        screens.close()
        assert screens.faults == []

    def test_the_form_of_a_fork_names_its_model_and_takes_another_one(self, screens: Screens, served: Api) -> None:
        served.post("runs", 201, graph="thinks", input={"order_id": 1}, run_id="a", wait=True)
        page = screens.open("/runs/a#seq=1&fork=1")
        page.wait_for_selector("form.fork .effects li")
        assert "Model: usual-1." in page.inner_text("form.fork .uses")
        page.select_option("form.fork [data-field=model]", "fast")
        page.click("form.fork button.first")
        page.wait_for_url(lambda url: "/runs/a#" not in url)
        fork = page.url.partition("#")[0].rpartition("/")[2]
        served.settled(fork)
        assert asked(served, fork) == ["fast-1"]
