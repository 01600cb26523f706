"""What became of a call, answered over HTTP and on the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, Retry, Tool, Update, node, tool
from orchestrator.kernel.question import Question
from orchestrator.views.call_questions import ApprovalContext, outcome_choices
from orchestrator.web.documents import AskedDocument, question_of
from orchestrator.web.questions import card_of
from tests.web.api import Api, Note, api
from tests.web.windows import Screens, serious_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

KINDS = ("text", "receipt", "nothing", "maybe", "silent", "work")
BIG = 9007199254740993
"""JavaScript would round it."""


class Receipt(BaseModel):
    note: str = ""
    currency: Literal["EUR", "USD"] = "EUR"
    number: int


class Bank:
    """Calls whose connection breaks the first time, and the graphs that make them."""

    def __init__(self) -> None:
        self.called: list[str] = []
        tools = [self._text(), self._receipt(), self._nothing(), self._maybe(), self._silent()]
        self.graphs = [*map(self._graph, tools), self._node()]

    def call(self, name: str) -> None:
        self.called.append(name)
        if self.called.count(name) == 1:
            raise ConnectionResetError("gone")

    def _text(self) -> Any:
        @tool(effect="irreversible", risk="dangerous")
        def text(to: str) -> str:
            """Returns a text."""
            self.call("text")
            return "called again"

        return text

    def _receipt(self) -> Any:
        @tool(effect="irreversible", risk="dangerous")
        def receipt(to: str) -> Receipt:
            """Returns an object."""
            self.call("receipt")
            return Receipt(number=1)

        return receipt

    def _nothing(self) -> Any:
        @tool(effect="irreversible", risk="dangerous")
        def nothing(to: str) -> None:
            """Returns nothing."""
            self.call("nothing")

        return nothing

    def _maybe(self) -> Any:
        @tool(effect="irreversible", risk="dangerous")
        def maybe(to: str) -> int | None:
            """Returns a number, or nothing."""
            self.call("maybe")
            return 1

        return maybe

    def _silent(self) -> Any:
        @tool(effect="irreversible", risk="dangerous")
        def silent(to: str):  # type: ignore[no-untyped-def]
            """Does not say what it returns."""
            self.call("silent")

        return silent

    def _graph(self, call: Tool) -> Graph:
        @node(retry=Retry(wait=0, on=("ConnectionError",)), tools=[call])
        async def work(state: Note, ctx: Context) -> Update:
            found = await ctx.tool(call.name, to="acme")
            if found.failed:
                raise ConnectionError(found.error)
            return {"parts": repr(found.output)}

        return Graph(name=call.name, state=Note, nodes={"work": work}, edges="START -> work -> END", output="parts")

    def _node(self) -> Graph:
        @node(effect="irreversible", retry=Retry(wait=0))
        async def work(state: Note) -> Update:
            self.call("work")
            return {"parts": "called again"}

        return Graph(name="work", state=Note, nodes={"work": work}, edges="START -> work -> END", output="parts")


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def asking(bank: Bank) -> Iterator[Api]:
    """A server with a run of each kind, each asking what became of its call."""
    with api(*bank.graphs) as found:
        for name in KINDS:
            run = found.post("runs", 201, graph=name, input={}, run_id=name, wait=True)
            assert [one["kind"] for one in run["waiting"]] == ["unknown_outcome"], run
        yield found


def answered(served: Api, run_id: str, status: int, value: object) -> Any:
    (question,) = served.get(f"runs/{run_id}")["waiting"]
    shown = {"question": question["id"], "digest": question["digest"]}
    return served.post(f"runs/{run_id}/answer", status, value=value, **shown)


def test_the_question_has_the_choices_in_words_and_the_schema_of_the_result(asking: Api) -> None:
    found = {one["run_id"]: one["question"] for one in asking.get("questions")["questions"]}
    ways = found["text"]["outcomes"]
    assert [one["choice"] for one in ways] == found["text"]["choices"] == ["happened", "failed", "retry"]
    assert [one["label"] for one in ways] == [
        "It happened; its result is ...", "Fail the step", "It did not happen: call it now",
    ]  # fmt: skip
    assert [one["dangerous"] for one in ways] == [False, False, True]
    assert {name: one["outcomes"][0]["result"] for name, one in found.items()} == {
        "text": "TEXT", "receipt": "JSON", "nothing": "", "maybe": "JSON", "silent": "JSON", "work": "JSON",
    }  # fmt: skip
    assert found["text"]["schema"] == {"type": "string"}
    assert found["silent"]["schema"] is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("run_id", "value", "words"),
    [
        ("text", "happened", "the step needs the result of the call"),
        ("text", {"choice": "happened"}, '{"choice": "happened", "result": ...}'),
        ("receipt", {"choice": "happened", "result": {"note": "x"}}, "the result.number is missing"),
        ("nothing", {"choice": "happened", "result": 5}, "the result must be null"),
        ("silent", "happened", "null if it returned nothing"),
        ("work", {"choice": "happened", "result": {"elsewhere": 1}}, "elsewhere is unknown"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_422(
    asking: Api, bank: Bank, run_id: str, value: object, words: str
) -> None:
    assert words in answered(asking, run_id, 422, value)["detail"]
    (question,) = asking.get(f"runs/{run_id}")["waiting"]
    forked = asking.post(
        f"runs/{run_id}/fork", 422, answers={question["id"]: {"value": value, "digest": question["digest"]}}
    )
    assert words in forked["detail"]
    assert asking.get(f"runs/{run_id}")["status"] == "paused"
    assert bank.called.count(run_id) == 1


@pytest.mark.full
def test_a_fork_has_the_result_that_is_given_with_it(asking: Api, bank: Bank) -> None:
    (question,) = asking.get("runs/text")["waiting"]
    value = {"choice": "happened", "result": "by hand"}
    asking.post(
        "runs/text/fork", 201, answers={question["id"]: {"value": value, "digest": question["digest"]}}, run_id="f"
    )
    assert asking.settled("f")["output"] == ["'by hand'"]
    (fork,) = [one for one in asking.get("runs/f/family")["runs"] if one["run_id"] == "f"]
    assert "by hand" in " ".join(fork["differs"])
    assert bank.called.count("text") == 1


def test_a_card_of_a_refused_result_says_that_the_call_happened() -> None:
    question: Question[Any, Any] = Question(
        id="q", kind="unknown_outcome", node="pay", prompt="The result was refused.", schema={"type": "integer"},
        payload={"tool": "pay", "args": {"to": "acme"}, "why": "refused", "error": "too long", "returned": "1, 2"},
    )  # fmt: skip
    document = question_of(question, answerable=True)
    asked = AskedDocument(run_id="r", graph="g", labels={}, asked=0, question=document)
    card = card_of(asked, "", ApprovalContext(0))
    assert card.title == "The result of pay was refused"
    assert {one.name: one.text for one in card.arguments} == {"to": "acme"}
    assert {one.name: one.text for one in card.facts} == {"error": "too long", "returned": "1, 2"}
    assert [one.label for one in outcome_choices(question)] == [
        "Use this result instead ...", "Fail the step", "Call it again",
    ]  # fmt: skip


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture
def windows(browser: Browser, asking: Api) -> Iterator[Screens]:
    found = Screens(browser, asking.url)
    yield found
    found.close()
    assert not [one for one in found.faults if "422" not in one]


def card(page: Page, run_id: str) -> Locator:
    return page.locator(f"article.card[data-run={run_id}]")


def happened(page: Page, run_id: str) -> Locator:
    """The card, with the form of the result."""
    found = card(page, run_id)
    found.get_by_role("button", name="It happened").click()
    return found


def given(found: Locator) -> None:
    found.get_by_role("button", name="Continue with this result").click()


def output(page: Page, served: Api, run_id: str) -> Any:
    """The output of a run, when the page has sent the answer."""
    page.locator(f"article.card.over[data-run={run_id}]").wait_for()
    return served.settled(run_id)["output"]


@pytest.mark.browser
@pytest.mark.parametrize("place", ["/inbox", "/runs/text"])
def test_no_key_answers_and_calling_again_takes_two_steps(
    windows: Screens, asking: Api, bank: Bank, place: str
) -> None:
    page = windows.open(place)
    found = card(page, "text")
    found.wait_for()
    first, _, last = buttons = found.locator(".acts button").all()
    assert [one.inner_text() for one in buttons] == [one["label"] for one in _outcomes(asking)]
    assert (first.get_attribute("class"), last.get_attribute("class")) == ("first", "risky")
    found.focus()
    for key in "aderhfy":
        page.keyboard.press(key)
    assert found.locator(".acts button").count() == 3
    last.focus()
    page.keyboard.press("Enter")
    assert "it happens twice. It cannot be undone." in found.locator(".told").inner_text()
    page.keyboard.press("Enter")  # the focus is on the way back
    assert found.locator(".acts button").count() == 3
    assert bank.called.count("text") == 1
    last = found.locator(".acts button").last
    last.click()
    found.get_by_role("button", name="It did not happen: call it now").click()
    assert output(page, asking, "text") == ["'called again'"]
    assert bank.called.count("text") == 2


def _outcomes(served: Api) -> list[dict[str, Any]]:
    (question,) = served.get("runs/text")["waiting"]
    found: list[dict[str, Any]] = question["outcomes"]
    return found


@pytest.mark.browser
def test_each_form_of_a_result_has_its_fields(windows: Screens, asking: Api, bank: Bank) -> None:
    page = windows.open("/inbox")
    found = happened(page, "text")
    given(found)
    found.get_by_text("Give the result of the call.").wait_for()
    found.locator("[data-field=result]").fill("by hand")
    given(found)
    assert output(page, asking, "text") == ["'by hand'"]

    found = happened(page, "receipt")
    fields = [one.get_attribute("data-field") for one in found.locator("[data-field]").all()]
    assert (fields[0], set(fields)) == ("number", {"number", "note", "currency"})
    found.locator("[data-field=note]").fill("x")
    given(found)
    found.locator(".outcome.bad", has_text="the result.number is missing").wait_for()
    assert found.locator("[data-field=note]").input_value() == "x"
    found.locator("[data-field=number]").fill(str(BIG))
    found.locator("[data-field=currency]").select_option("USD")
    given(found)
    found_output = output(page, asking, "receipt")
    assert [eval(one) for one in found_output] == [{"number": BIG, "note": "x", "currency": "USD"}]

    found = card(page, "nothing")
    found.get_by_role("button", name="It happened").click()
    assert output(page, asking, "nothing") == ["None"]

    found = happened(page, "maybe")
    found.get_by_label("No result").check()
    given(found)
    assert output(page, asking, "maybe") == ["None"]

    found = happened(page, "silent")
    found.get_by_label("JSON", exact=True).check()
    found.get_by_label("Result as JSON").fill("{")
    given(found)
    found.get_by_text("This is not JSON.").wait_for()
    found.get_by_label("Text", exact=True).check()
    found.get_by_label("Result", exact=True).fill("3.10")
    given(found)
    assert output(page, asking, "silent") == ["'3.10'"]

    found = happened(page, "work")
    found.locator("[data-field=parts]").fill("by hand")
    given(found)
    assert output(page, asking, "work") == ["by hand"]
    assert sorted(bank.called) == sorted(KINDS)


@pytest.mark.browser
def test_another_result_is_given_in_a_fork_at_the_answer(windows: Screens, asking: Api, bank: Bank) -> None:
    answered(asking, "receipt", 200, {"choice": "happened", "result": {"number": BIG}})
    asking.settled("receipt")
    records = asking.get("runs/receipt/records")["records"]
    at = next(one["seq"] for one in records if one["type"] == "answered")
    page = windows.open(f"/runs/receipt#seq={at}&fork={at}")
    form = page.locator("fieldset.answer")
    form.wait_for()
    assert "It happened; its result is ... (as it was)" in form.inner_text()
    assert str(BIG) in form.get_by_label("Result as JSON").input_value()
    form.get_by_label("Result as JSON").fill('{"number": 7}')
    page.locator("form.fork .acts button.first").click()
    page.wait_for_url(lambda url: "/runs/receipt" not in url)
    fork = page.url.rpartition("/")[2].partition("#")[0]
    assert [eval(one)["number"] for one in asking.settled(fork)["output"]] == [7]
    assert bank.called.count("receipt") == 1


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_that_axe_finds_in_the_forms(windows: Screens, scheme: str) -> None:
    page = windows.open("/inbox", (390, 844), color_scheme=scheme)
    for run_id in ("text", "receipt", "silent", "work"):
        happened(page, run_id)
    card(page, "maybe").locator(".acts button").last.click()
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
