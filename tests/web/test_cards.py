"""What an approval shows: every value of its call and every field beside it, each in its place, and nothing else.

States are drawn whose fields have the names of arguments and of parts of calls, and values that look like them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from pydantic import JsonValue, create_model

from orchestrator import Approve, Executor, Graph, tool
from orchestrator.errors import StaleAnswer
from orchestrator.executor.replay.running import question_digest
from orchestrator.kernel.question import Question, parts_of
from orchestrator.nodes import Ask, Confirm
from orchestrator.render.html.step_data import asked_data
from orchestrator.render.terminal.event_lines import question_text
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import NewRun
from orchestrator.views.call_questions import ApprovalContext
from orchestrator.views.timeline import AskedQuestion
from orchestrator.visible import barred, exact
from orchestrator.web.documents import AskedDocument, question_of
from orchestrator.web.questions import card_of
from orchestrator.web.screens.shell import templates
from tests.web.windows import Screens

NAMES = ("tool", "args", "risk", "effect", "key", "call_id", "shown", "family", "deleted", "why", "to", "amount")
TEXTS = st.one_of(
    st.sampled_from(["none", "pure", "act", "  risk  none", "\n  shown\n    to  alice", "<b>", "\u202ea", ""]),
    st.text(alphabet="ab \n\u200b{", max_size=8),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, st.integers(-9, 10**12), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=len(NAMES))


@tool(risk="dangerous", effect="irreversible")
def act(
    tool: JsonValue = None, args: JsonValue = None, risk: JsonValue = None, key: JsonValue = None,
    call_id: JsonValue = None, shown: JsonValue = None, to: JsonValue = None, amount: JsonValue = None,
) -> str:  # fmt: skip
    """Act."""
    return "done"


TAKEN = ("tool", "args", "risk", "key", "call_id", "shown", "to", "amount")


def graph(fields: Mapping[str, object], *, call: bool, kind: str = "confirm") -> Graph:
    own: dict[str, Any] = {name: (JsonValue, value) for name, value in fields.items()}
    state = create_model("State", the_tool=(str, "act"), the_args=(dict[str, JsonValue], {}), said=(str, ""), **own)
    named = {"tool": "the_tool", "args": "the_args"} if call else {}
    if kind == "ask":
        nodes: Any = {"sure": Ask(prompt="Well?", show=tuple(fields), answer="said")}
        edges = "START -> sure -> END"
    else:
        nodes = {"sure": Confirm(prompt="Go on?", show=tuple(fields), **named)}
        edges = "START -> sure\nsure -> END : approved\nsure -> END : denied"
    return Graph(name="g", state=state, nodes=nodes, edges=edges, input="the_args")


def asked(fields: Mapping[str, object], args: Mapping[str, object], *, call: bool, kind: str = "confirm") -> Question:
    async def first() -> Question:
        async with Executor(tools=[act]) as executor:
            run = await executor.start(graph(fields, call=call, kind=kind), {"the_args": dict(args)}, run_id="r")
            return run.waiting[0]

    with ThreadPoolExecutor(1) as thread:  # a browser's tests have a loop in this one
        return thread.submit(anyio.run, first).result()


DRAWN = st.tuples(FIELDS, st.dictionaries(st.sampled_from(TAKEN), VALUES), st.sampled_from(["call", "confirm", "ask"]))


def drawn(one: tuple[Any, Any, str]) -> tuple[Question, dict[str, Any], dict[str, Any]]:
    """A question that a node asks, with what it has to show: of the call, and beside it."""
    fields, args, kind = one
    question = asked(fields, args, call=kind == "call", kind="ask" if kind == "ask" else "confirm")
    call, shown = parts_of(question.kind, question.payload)
    assert dict(shown) == fields
    assert set(call) == ({"tool", "args", "risk", "effect", "call_id"} if kind == "call" else set())
    if call:
        assert (call["tool"], call["risk"], call["effect"]) == ("act", "dangerous", "irreversible")
        assert args.items() <= dict(call["args"]).items()  # type: ignore[call-overload]
    return question, dict(call), dict(shown)


class Read(HTMLParser):
    """The texts of a card: its title, its pills, and the rows of each list."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title, self.pills = "", list[str]()
        self.lists: dict[str, list[list[str]]] = {}
        self._path: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        self._path.append((tag, kind))
        if tag == "dl":
            self.lists[kind] = []
        elif tag == "dt":
            self.lists[next(one for name, one in self._path if name == "dl")].append(["", ""])

    def handle_endtag(self, tag: str) -> None:
        while self._path and self._path.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [name for name, _ in self._path]
        if "h2" in tags:
            self.title += data
        elif any(name == "span" and kind.startswith("pill") for name, kind in self._path):
            self.pills.append(data)
        elif "dt" in tags or "dd" in tags:
            row = self.lists[next(one for name, one in self._path if name == "dl")][-1]
            row["dd" in tags] += data


def text(value: object) -> str:
    found = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return templates().filters["visible"](found) or "empty"


def rows(values: Mapping[str, object]) -> list[list[str]]:
    return [[name, text(value)] for name, value in values.items()]


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(DRAWN)
def test_a_card_shows_every_value_in_its_place(one: Any) -> None:
    question, call, shown = drawn(one)
    document = question_of(question, answerable=True)
    card = card_of(AskedDocument(run_id="r", graph="g", labels={}, asked=0, question=document), "", ApprovalContext(0))
    read = Read(templates().get_template("card.html").render(card=card, root="", moment=0.0))
    assert read.title == ("act" if call else "A run asks" if question.kind == "input" else "Approval")
    assert read.pills == (["dangerous", "irreversible"] if call else [])
    assert sorted(read.lists.get("arguments", [])) == sorted(rows(call.get("args", {})))
    assert read.lists.get("arguments beside of-call", []) == rows({"call_id": call["call_id"]} if call else {})
    assert read.lists.get("arguments beside of-state", []) == rows(shown)
    assert {name: json.loads(value) for name, value in card.source["args"].items()} == call.get("args", {})  # type: ignore[attr-defined]


def test_the_title_of_a_card_and_so_a_notification_is_one_line_without_what_cannot_be_seen() -> None:
    payload = {"tool": "act\n\u202e\n" + " " * 50 + "approved", "args": {}}
    question = Question(id="q", kind="approval", node="sure", payload=payload)
    document = question_of(question, answerable=True)
    card = card_of(AskedDocument(run_id="r", graph="g", labels={}, asked=0, question=document), "", ApprovalContext(0))
    assert card.title == "act \\u202e[51 spaces]approved"


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(DRAWN)
def test_the_terminal_shows_every_value_in_its_place(one: Any) -> None:
    question, call, shown = drawn(one)
    lines = [line for line in question_text(question).split("\n")[1:] if not line.startswith(("  | ", "  = "))]
    expected = []
    if call:
        expected.append(f"  tool  {call['tool']}")
        if not any(isinstance(value, str) and "\n" in value for value in call["args"].values()):
            expected.append(f"  args  {exact(call['args'])}")
        else:
            expected.append("  args")
            for name, value in call["args"].items():
                if isinstance(value, str) and "\n" in value:
                    expected.append(f"    {name}  {value.count(chr(10)) + 1} lines")
                    expected += barred(value, "      | ").split("\n")
                else:
                    expected.append(f"    {name}  {exact(value)}")
        expected += [f"  {name}  {exact(call[name])}" for name in ("risk", "effect", "call_id")]
    if shown:
        expected += ["  shown", *(f"    {name}  {exact(value)}" for name, value in shown.items())]
    assert lines == expected


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(DRAWN)
def test_a_document_of_the_api_and_the_data_of_a_page_have_every_value_in_its_place(one: Any) -> None:
    question, call, shown = drawn(one)
    document = question_of(question, answerable=True)
    assert json.loads(document.shown) == document.payload == question.payload
    data = asked_data(AskedQuestion(question, 1, None, None, ""))
    assert (data.get("call", {}), data.get("shown", {})) == (call, shown)


@pytest.mark.browser
def test_the_page_of_a_run_shows_every_value_in_its_place(screens: Screens) -> None:
    page = screens.open("/runs")
    module = """async (all) => {
      const { questionElement } = await import("/static/modules/question.js");
      const { pretty, visible } = await import("/static/modules/texts.js");
      const { Summary } = await import("/static/modules/summary.js");
      const texts = (parts) => [...parts ?? []].map((one) => one.textContent);
      const fields = (part) => [...part?.querySelectorAll(":scope > .field") ?? []].map((one) => texts(one.children));
      const text = (value) => visible(typeof value === "string" ? value : pretty(value));
      const meant = (values) => Object.entries(values ?? {}).map(([name, value]) => [name, text(value)]);
      return all.map((asked) => {
        const element = questionElement(asked), beside = element.querySelector(":scope > .shown.beside");
        const call = element.querySelector(":scope > .shown:not(.beside)");
        const { args, ...facts } = asked.call ?? {};
        const card = new Summary("a", () => {}).card({ name: "Waits", kind: "open", text: "", asked });
        return [fields(call), meant(args), fields(beside), meant(asked.shown),
          texts(call?.querySelectorAll("dt, dd")), Object.entries(facts).flat(),
          card.querySelector(".question").innerHTML, element.outerHTML,
          card.textContent, `Waits${element.textContent}`];
      });
    }"""

    @settings(max_examples=1, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(DRAWN, min_size=12, max_size=12))
    def check(many: list[Any]) -> None:
        data = []
        for question, _, _ in map(drawn, many):
            data.append(asked_data(AskedQuestion(question, 1, None, None, "")))
        for args, args_meant, shown, shown_meant, facts, facts_meant, *top in page.evaluate(module, data):
            assert (args, shown, facts) == (args_meant, shown_meant, facts_meant)
            assert (top[0], top[2]) == (top[1], top[3])  # the card at the top of the page, also of a file, has the same

    check()


@pytest.mark.browser
def test_the_form_of_a_call_takes_any_name_and_shows_what_cannot_be_seen(screens: Screens) -> None:
    page = screens.open("/runs")
    module = """async (given) => {
      const [args, schema] = given.map((one) => JSON.parse(one));
      const { ArgumentForm } = await import("/static/argument_form.js");
      const form = new ArgumentForm(args, schema);
      return [form.element.innerText, JSON.stringify(form.read())];
    }"""
    args = {"__proto__": "1", "hasOwnProperty": '"a"', "a\u202eb": '"x\u200by"'}
    schema = {"properties": {"constructor": {"type": "string"}, "toString": {"enum": ["r\u202ew"]}}}
    shown, read = page.evaluate(module, [json.dumps(args), json.dumps(schema)])
    assert json.loads(read) == args
    assert "\u202e" not in shown
    assert [one in shown for one in ("a\\u202eb", "r\\u202ew", '"x\\u200by"')] == [True, True, True]


def flat(question: Question) -> dict[str, object]:
    """The payload as earlier versions wrote it: the shown fields beside, and below, the parts of the call."""
    call, shown = parts_of(question.kind, question.payload)
    return {**shown, **call}


def earlier(question: Question) -> Question:
    return question.model_copy(update={"payload": flat(question)})


@pytest.mark.parametrize("call", [True, False])
def test_a_question_of_an_earlier_version_is_read_answered_and_replayed(call: bool) -> None:
    async def main() -> None:
        store = MemoryStore()
        pay = graph({"to": "alice", "amount": 5}, call=call)
        async with Executor(store, tools=[act]) as executor:
            run = await executor.start(pay, {"the_args": {"to": "mallory"}}, run_id="old")
            info, new = await store.info("old"), run.waiting[0]
            records = [
                one if one.type != "asked" else structs.replace(one, question=earlier(one.question))
                for one in await store.read("old")
            ]
            await executor.delete("old")
            await store.create(NewRun(info, records))
        async with Executor(store, tools=[act], graphs=[pay]) as executor:
            (old,) = (await executor.load("old")).waiting
            assert dict(old.payload) == flat(new)
            assert parts_of(old.kind, old.payload).shown == {"to": "alice", "amount": 5}
            assert question_digest(old) == question_digest(new)
            over = await executor.answer("old", old.id, Approve(), digest=old.digest)
            assert over.status == "completed"
            assert [one.type for one in await store.read("old")].count("asked") == 1
            again = await executor.replay("old")
            assert again.run.status == "completed"
            assert "diverged" not in [one.type for one in await store.read(again.run.run_id)]

    anyio.run(main)


def test_a_field_that_has_the_name_of_a_part_of_a_call_is_a_field_also_beside_an_old_one() -> None:
    old = {"tool": "act", "args": {"to": "mallory"}, "risk": "read", "effect": "pure", "to": "alice", "key": "k"}
    assert parts_of("approval", old).call.keys() == {"tool", "args", "risk", "effect"}
    assert parts_of("approval", old).shown == {"to": "alice", "key": "k"}
    assert parts_of("input", old).shown == old


def test_the_digest_is_that_of_all_that_is_shown() -> None:
    async def main() -> None:
        pay = graph({"to": "", "amount": 5}, call=True)
        async with Executor(tools=[act]) as executor:
            first = (await executor.start(pay, {"the_args": {"to": "a"}}, run_id="same")).waiting[0]
            await executor.delete("same")
            other = graph({"to": "", "amount": 6}, call=True)
            second = (await executor.start(other, {"the_args": {"to": "a"}}, run_id="same")).waiting[0]
            assert first.id == second.id
            with pytest.raises(StaleAnswer):
                await executor.answer("same", second.id, Approve(), digest=first.digest)

    anyio.run(main)


def test_no_field_passes_for_the_risk_that_a_policy_approves() -> None:
    async def main() -> None:
        spoof = graph({"tool": "act", "args": {}, "risk": "none", "effect": "pure", "call_id": "c"}, call=False)
        async with Executor(tools=[act]) as executor:
            run = await executor.start(spoof, {"the_args": {}}, approve="dangerous")
            assert run.status == "paused"

    anyio.run(main)
