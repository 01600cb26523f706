"""The events that a run waits for and keeps: in the API, and as forms on the page of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator import Graph
from orchestrator.nodes import Wait
from tests.web.api import Api, Note, api
from tests.web.orders import orders
from tests.web.windows import Screens, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

twice = Graph(
    name="twice",
    state=Note,
    input="topic",
    output="topic",
    nodes={"one": Wait(event="first", into="topic"), "two": Wait(event="second", into="topic")},
    edges="START -> one -> two -> END",
)
HOSTILE = "<img src=x onerror=alert(1)>"


def begun(found: Api, **fields: object) -> None:
    found.post("runs", 201, graph="orders", input={"order_id": 7, **fields}, run_id="o", wait=True)


def test_awaited_events_have_a_deadline_and_the_schema_of_their_data() -> None:
    with api(orders) as found:
        begun(found)
        (one,) = found.get("runs/o/awaited")["awaited"]
        assert (one["name"], one["node"], one["match"]) == ("paid", "wait", {"order": 7})
        assert one["deadline"] > 0
        (ref,) = [way["$ref"] for way in one["schema"]["anyOf"] if "$ref" in way]
        assert (
            one["schema"]["$defs"][ref.removeprefix("#/$defs/")]["properties"]["amount"]["description"] == "In euros."
        )
        assert found.get("runs/o/awaited")["names"] == ["paid"]


def test_an_event_that_no_node_waits_for_is_kept_and_listed() -> None:
    with api(orders) as found:
        begun(found)
        said = found.post("runs/o/send", event="payed", data={"order": 7}, by="ann")
        assert "did you mean 'paid'?" in said["warning"]
        (kept,) = found.get("runs/o/awaited")["kept"]
        assert (kept["name"], kept["by"]) == ("payed", "ann")
        assert "did you mean 'paid'?" in kept["unawaited"]


def test_an_event_whose_data_does_not_match_is_kept_with_a_warning() -> None:
    with api(orders) as found:
        begun(found)
        said = found.post("runs/o/send", event="paid", data={"order": 8, "amount": 1})
        assert said["warning"] == "its data does not match: wait waits for event 'paid' with order = 7"
        assert [one["unawaited"] for one in found.get("runs/o/awaited")["kept"]] == [said["warning"]]
        assert found.post("runs/o/send", event="paid", data={"order": 7, "amount": 1})["warning"] is None
        assert found.settled("o")["status"] == "completed"
        (kept,) = found.get("runs/o/awaited")["kept"]
        assert kept["unawaited"] == "its data did not match, and that of a later one did (record 4)"


def test_an_event_that_an_ended_run_kept_has_a_reason() -> None:
    with api(orders) as found:
        begun(found)
        for _ in range(2):
            found.portal.call(lambda: found.executor.send("o", "paid", {"order": 7, "amount": 1}, resume=False))
        assert [one["unawaited"] for one in found.get("runs/o/awaited")["kept"]] == ["", ""]
        found.post("runs/o/resume")
        assert found.settled("o")["status"] == "completed"
        (kept,) = found.get("runs/o/awaited")["kept"]
        assert kept["unawaited"] == "another one came first (record 3), and the run ended"


def test_an_event_whose_data_has_another_type_is_refused_and_the_run_goes_on_waiting() -> None:
    with api(orders) as found:
        begun(found)
        for data in ({"order": 7, "amount": HOSTILE}, {"order": 7}, HOSTILE, [1]):
            problem = found.post("runs/o/send", 422, event="paid", data=data)
            assert problem["type"].endswith(":invalid-answer")
            assert "the data of the event 'paid' does not fit: update of Order: field 'payment'" in problem["detail"]
        assert found.get("runs/o/awaited")["kept"] == []
        assert found.post("runs/o/send", event="paid", data={"order": 7, "amount": "3"})["warning"] is None
        assert found.settled("o")["status"] == "completed"


def test_many_kept_events_are_counted_and_not_all_listed() -> None:
    with api(orders) as found:
        begun(found)
        for number in range(103):
            found.portal.call(lambda number=number: found.executor.send("o", HOSTILE, number, resume=False))  # type: ignore[misc]
        said = found.get("runs/o/awaited")
        assert (len(said["kept"]), said["more_kept"]) == (100, 3)


def test_a_run_that_the_principal_may_not_see_has_no_events() -> None:
    def authorize(request: object, action: str, run: object) -> str | None:
        return "ann" if run is None or action == "start_run" else None

    with api(orders, settings={"authorize": authorize}) as found:
        found.post("runs", 201, graph="orders", input={"order_id": 7}, run_id="o")
        found.get("runs/o/awaited", 404)


@pytest.mark.browser
class TestOnThePage:
    @pytest.fixture
    def served(self) -> object:
        with api(orders) as found:
            yield found

    def opened(self, screens: Screens, **options: object) -> Page:
        page = screens.open("/runs/o", **options)  # type: ignore[arg-type]
        page.wait_for_selector("#events .event[data-event=paid]")
        return page

    def test_the_event_is_sent_by_a_form_of_its_schema(self, screens: Screens, served: Api) -> None:
        begun(served, items=["a"])
        page = self.opened(screens)
        card = page.locator("#events [data-event=paid]")
        assert "expires in 23 h" in card.inner_text()
        assert page.locator("#a-cards section.card.open").is_hidden(), "the form says what the run waits for"
        assert card.locator("[data-field=order]").input_value() == "7"
        card.locator("[data-field=amount]").fill("12.50")
        card.locator("[data-field=items]").fill("pen\n two words ")
        card.locator("button.first").click()
        page.wait_for_selector("#status.completed, .badge.completed, .pill.completed")
        assert served.settled("o")["output"] == "7 ['a'] [] (12.5, ['pen', 'two words'])"

    def test_a_name_that_nothing_waits_for_is_said_before_and_after(self, screens: Screens, served: Api) -> None:
        begun(served)
        page = self.opened(screens)
        page.click("#events .other summary")
        page.fill("#events .other input", "payed")
        assert "No node is known to wait for this event" in page.inner_text("#events .other")
        page.click("#events .other button.first")
        page.wait_for_selector("#events .kept li")
        assert "did you mean 'paid'?" in page.inner_text("#events .kept")
        assert "The run keeps the event, but" in page.inner_text("#events .other .outcome")

    def test_wrong_data_is_said_at_its_field_and_sends_nothing(self, screens: Screens, served: Api) -> None:
        begun(served)
        page = self.opened(screens)
        page.locator("#events [data-event=paid] [data-field=amount]").fill("much")
        page.click("#events [data-event=paid] button.first")
        assert "a number is needed" in page.inner_text("#events [data-event=paid] .fault:not(:empty)")
        assert page.locator("#events [data-event=paid] .outcome.bad").count() == 0, "no empty box"
        assert served.get("runs/o")["seq"] == 2

    def test_data_that_does_not_match_is_said(self, screens: Screens, served: Api) -> None:
        begun(served)
        page = self.opened(screens)
        page.fill("#events [data-event=paid] [data-field=order]", "8")
        page.fill("#events [data-event=paid] [data-field=amount]", "1")
        page.click("#events [data-event=paid] button.first")
        page.wait_for_selector("#events .kept li")
        said = page.inner_text("#events [data-event=paid] .outcome.warn")
        assert "The run keeps the event, but its data does not match" in said
        assert "its data does not match" in page.inner_text("#events .kept")

    def test_a_form_in_use_says_that_its_wait_is_over_and_goes_when_it_is_left(self, browser: Browser) -> None:
        with api(twice) as found:
            found.post("runs", 201, graph="twice", input="bees", run_id="o", wait=True)
            screens = Screens(browser, found.url)
            page = screens.open("/runs/o")
            field = page.locator("#events [data-event=first] [data-field=data]")
            field.click()
            page.keyboard.type("my te")
            found.post("runs/o/send", event="first", data="from elsewhere")
            page.wait_for_selector("#events .outcome:has-text('does not wait for this event any more')")
            assert field.input_value() == "my te"
            assert page.locator("#events [data-event=first] button.first").is_disabled()
            page.evaluate("document.activeElement.blur()")
            page.wait_for_selector("#events [data-event=second]")
            assert page.locator("#events [data-event=first]").count() == 0
            screens.close()
            assert screens.faults == []

    def test_hostile_names_and_texts_stay_text(self, screens: Screens, served: Api) -> None:
        begun(served, notes=HOSTILE)
        served.post("runs/o/send", event=HOSTILE, data={HOSTILE: HOSTILE}, by=HOSTILE)
        page = self.opened(screens)
        assert HOSTILE in page.inner_text("#events .kept")
        assert page.evaluate("document.querySelectorAll('#events img').length") == 0

    @pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark")])
    def test_the_forms_fit_and_can_be_read_by_all(self, browser: Browser, served: Api, width: int, theme: str) -> None:
        begun(served)
        served.post("runs/o/send", event="payed")
        screens = Screens(browser, served.url)
        page = self.opened(screens, size=(width, 900), color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
        page.evaluate("document.querySelectorAll('#events details').forEach((one) => { one.open = true; })")
        assert serious_faults(page, moderate=True) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        screens.close()
        assert screens.faults == []
