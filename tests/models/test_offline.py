"""`OfflineModel` does arithmetic, whatever the words around it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Context as Precision
from decimal import Decimal
from fractions import Fraction
from time import process_time
from typing import Any

import anyio
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import Graph, OfflineModel, Toolbox, tool
from orchestrator.graph import Node
from orchestrator.models import Message, Reply, tool_result, user
from orchestrator.nodes import ChooseArgs, ChooseTool, Classify, Decide, Think
from orchestrator.strategies.tool_user import tool_user
from orchestrator.tools import tools_from_ref
from tests.models.expressions import TooLarge, expressions, worth

ARITHMETIC = Toolbox(*tools_from_ref("arithmetic"))
ONLY = "I only do arithmetic"
CLASSES = {"billing": "about money and charges", "bugs": "about what does not work", "other": "everything else"}
quick = settings(max_examples=settings().max_examples // 2, deadline=None)
"""For laws whose every example is a whole conversation or run."""


class Mail(BaseModel):
    question: str
    name: str = ""
    yes: bool = True
    score: int = 0


def ask(question: str | list[Message], tools: Any = (), **options: Any) -> Reply:
    async def call() -> Reply:
        return await OfflineModel().complete(question, tools, **options)

    return anyio.run(call)


def converse(question: str, tools: Toolbox = ARITHMETIC, **options: Any) -> tuple[str, list[str]]:
    """The last answer of a conversation in which the model's calls are made, and the tools that were called."""

    async def talk() -> tuple[str, list[str]]:
        messages, called = [user(question)], []
        for _ in range(50):
            reply = await OfflineModel().complete(messages, tools, **options)
            if not reply.tool_calls:
                return reply.text, called
            messages.append(reply.message)
            for call in reply.tool_calls:
                called.append(call.name)
                result = await tools.execute(name=call.name, tool_input=call.arguments)
                messages.append(tool_result(call, result.text))
        raise AssertionError(f"no end: {messages}")

    return anyio.run(talk)


def known(text: str) -> Fraction:
    try:
        return worth(text)
    except (ZeroDivisionError, TooLarge):
        assume(False)
        raise


def rounded(value: Fraction) -> Decimal:
    return Precision(prec=12).divide(Decimal(value.numerator), Decimal(value.denominator))


def same(answer: str, value: Fraction) -> bool:
    """Whether an answer is a value: exact if it is whole, else with 12 digits."""
    return answer == str(value.numerator) if value.denominator == 1 else Decimal(answer) == rounded(value)


def near(answer: str, value: Fraction) -> bool:
    """Whether an answer, worked out by tools that round to floating point, is a value."""
    return abs(Fraction(Decimal(answer)) - value) <= abs(value) / 10**9


# -- the value -----------------------------------------------------------------------------------------------------


@pytest.mark.full
@given(expressions())
def test_its_answers_are_those_of_exact_fractions(text: str) -> None:
    assert same(ask(text).text, known(text))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("0.1 + 0.2", "0.3"),
        ("-2 ** 2", "-4"),
        ("(-2) ** 2", "4"),
        ("2 ** 3 ** 2", "512"),
        ("2 ** -1", "0.5"),
        ("7 - -3", "10"),
        ("2 / 3 * 3", "2"),
        ("1 / 3", "0.333333333333"),
        (".5 * 4", "2"),
        ("2 ** 0.5", "1.41421356237"),
        ("1,000 × 3 − 1", "2999"),
        ("6 ÷ 3", "2"),
        ("2(3 + 4)", "14"),
        ("2^10", "1024"),
        ("1e3 + 1", "1001"),
        ("7", "7"),
        ("1000-20-50", "930"),
    ],
)
def test_precedence_signs_and_decimals(question: str, answer: str) -> None:
    assert ask(question).text == answer


@pytest.mark.parametrize("question", ["1 / 0", "1 / (2 - 2)", "0 ** -1", "5 * (3 / (1.5 - 1.5))"])
def test_division_by_zero_has_no_value(question: str) -> None:
    assert ask(question).text.endswith("nothing can be divided by zero.")
    text, called = converse(question)
    assert "divided by zero" in text
    assert not {"divide", "power"} & set(called)


def test_an_even_root_of_a_negative_number_has_no_value() -> None:
    assert ask("(-8) ** 0.5").text == "(-8) ** 0.5 is not a real number."


@pytest.mark.parametrize(
    "question",
    [
        "9 ** 9 ** 9 ** 9",
        "10 ** 1000000",
        "2 ** -999999999",
        "0.5 ** 999999999",
        "(10 ** 900) * (10 ** 900)",
        "(10 ** 900) ** (10 ** 900)",
        "1e9999",
        "1e-9999 * 2",
        "9e900 * 9e900",
        "1e999999999999",
        "(" * 20_000 + "1" + ")" * 20_000,
        "-" * 20_000 + "1",
        "1" * 200_000,
        "0." + "1" * 200_000,
        "1 + " * 20_000 + "1",
        "2 ** " * 20_000 + "1",
    ],
    ids=lambda question: question[:24],
)
def test_what_is_too_large_is_refused_at_once(question: str) -> None:
    began = process_time()
    answers = [ask(question).text, converse(question)[0]]
    assert process_time() - began < 20  # well under; unbounded it would not end at all
    for answer in answers:
        assert any(words in answer for words in ("digits", "too long", "too deeply", "too large", "cannot read"))
        assert len(answer) < 5000


# -- with tools ----------------------------------------------------------------------------------------------------


@quick
@given(expressions("+ - *", powers=False, decimals=False))
def test_with_tools_whole_numbers_come_out_exactly(text: str) -> None:
    answer, called = converse(text)
    assert answer == str(known(text).numerator)
    assert set(called) <= {"add", "subtract", "multiply"}
    assert called


@quick
@given(expressions("+ * /", negatives=False))
def test_with_tools_that_round_it_comes_to_the_same(text: str) -> None:
    value = known(text)
    assume(value == 0 or Fraction(1, 10**100) < value < 10**100)  # what floating point can hold on the way
    answer, _ = converse(text)
    assume("too large" not in answer)
    assert near(answer, value)


def test_calls_that_can_be_made_together_are_made_together_if_that_is_wished() -> None:
    async def first(**options: Any) -> Reply:
        return await OfflineModel().complete("(1 + 2) * (3 + 4)", ARITHMETIC, **options)

    assert [call.arguments for call in anyio.run(first).tool_calls] == [{"a": 1, "b": 2}]
    reply = anyio.run(lambda: first(parallel_tool_calls=True))
    assert [call.arguments for call in reply.tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert converse("(1 + 2) * (3 + 4)", parallel_tool_calls=True) == ("21", ["add", "add", "multiply"])


@pytest.mark.parametrize("parallel", [None, True])
@pytest.mark.parametrize(("question", "answer"), [("(0-(0+4))+(4-0)", "0"), ("100000*100000+1", "10000000001")])
def test_a_call_is_known_by_its_numbers_in_their_order_and_whole_numbers_are_exact(
    question: str, answer: str, parallel: bool | None
) -> None:
    assert converse(question, parallel_tool_calls=parallel)[0] == answer


def test_tools_of_any_make_are_used() -> None:
    @tool(name="sum_of")
    def added(numbers: list[float]) -> str:
        """Adds all the numbers of a list."""
        return f"The sum is {sum(numbers):g}"

    @tool
    def divider(divisor: float, dividend: float) -> float:
        """Division of two numbers."""
        return dividend / divisor

    assert converse("(1 + 2) / 4", Toolbox(added, divider)) == ("0.75", ["sum_of", "divider"])

    @tool
    def calculator(expression: str) -> dict[str, Any]:
        """Works out an arithmetic expression."""
        return {"result": float(worth(expression))}

    assert converse("(1 + 2) / 4", Toolbox(calculator)) == ("0.75", ["calculator"])


def test_without_the_tool_that_it_needs_it_says_which_one() -> None:
    only_add = Toolbox(*(one for one in ARITHMETIC if one.name == "add"))
    text, called = converse("(1 + 2) * 3", only_add)
    assert called == ["add"]
    assert text.startswith(f"{ONLY} with the tools that I get: for 3 * 3 I need one that multiplies numbers")
    assert "it takes two, and its description has words such as 'multiply' and 'number'; the tools are: " in text


def test_a_tool_that_fails_or_says_something_else_ends_it() -> None:
    @tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        if a == 1:
            raise ValueError("broken")
        return "a lot"

    assert converse("1 + 2", Toolbox(add))[0].startswith("I cannot work out 1 + 2: add failed: ")
    assert "which is not one number" in converse("2 + 2", Toolbox(add))[0]


def test_it_believes_the_tools() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b + 1000

    assert converse("1 + 2", Toolbox(add)) == ("1003", ["add"])


# -- wording -------------------------------------------------------------------------------------------------------

AROUND = st.sampled_from([
    "{}", "What is {}?", "Calculate {} step by step.", "Please work out ({}), will you?", "I wonder: {} = ?",
    "\n\nQuestion:\t{}\n\n", "Wie viel ist {}?", "{} — and nothing else, please!", "« {} »",
])  # fmt: skip


@pytest.mark.full
@given(expressions(), AROUND)
def test_the_words_around_a_calculation_make_no_difference(text: str, around: str) -> None:
    known(text)
    assert ask(around.format(text)).text == ask(text).text


WORDS = st.text(st.characters(blacklist_characters="{}", blacklist_categories=["Cs"]), max_size=40)


@st.composite
def rewordings(draw: st.DrawFn, *names: str) -> dict[str, str]:
    """A system message and a prompt of any words, numbers too, with some of the names or none in any order."""
    chosen = draw(st.lists(st.sampled_from(names), unique=True))
    prompt = "".join(f"{draw(WORDS)}{{{name}}}" for name in chosen) + draw(WORDS)
    return {"system": draw(WORDS), "prompt": prompt}


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(
    expressions("+ - *", powers=False, decimals=False),
    rewordings("question", "tools"),
    rewordings("question", "tool", "description", "parameters"),
    rewordings("question", "steps"),
)
def test_rewording_every_prompt_of_an_agent_changes_nothing(
    text: str, tool_words: Mapping[str, str], args_words: Mapping[str, str], think_words: Mapping[str, str]
) -> None:
    agent = tool_user(max_steps=30)
    reworded = agent.replace(
        choose_tool=ChooseTool(current="current", corrections="corrections", **tool_words),
        choose_args=ChooseArgs(current="current", corrections="corrections", **args_words),
        think=Think(corrections="corrections", **think_words),
    )
    runs = [
        one.run_sync(f"What is {text}?", model=OfflineModel(), tools=ARITHMETIC, approve="none")
        for one in (agent, reworded)
    ]
    assert [run.status for run in runs] == ["completed"] * 2
    assert [run.output for run in runs] == [str(known(text).numerator)] * 2
    assert runs[0].values["step_history"] == runs[1].values["step_history"]


def test_equal_requests_get_equal_replies() -> None:
    assert ask("(1 + 2) * 3", ARITHMETIC) == ask("(1 + 2) * 3", ARITHMETIC)


# -- anything else -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of France?",
        "",
        "Hello!",
        "Hello 5",
        "Bob has 3 apples and 4 pears",
        "What happened on 2024-10-05?",
        "version 1.5.2",
        "sqrt(4)",
        "5!",
        "7 % 3",
        "half of 10",
        "1 + 1 or 3 * 3?",
        "1 2",
        "1 +",
        "__import__('os').system('true')",
        "(1).__class__",
    ],
)
@pytest.mark.parametrize("tools", [(), ARITHMETIC], ids=["alone", "with tools"])
def test_anything_else_it_says_that_it_only_does_arithmetic(question: str, tools: Any) -> None:
    reply = ask(question, tools)
    assert reply.text.startswith(ONLY)
    assert not reply.tool_calls


@given(st.text(st.characters(blacklist_categories=["Nd", "Nl", "No", "Cs"])))
def test_a_text_without_numbers_is_no_arithmetic(text: str) -> None:
    assert ask(text).text.startswith(ONLY)


@given(st.text(alphabet="0123456789.,+-*/^()eExX ab=?%", max_size=60))
def test_whatever_it_is_asked_it_answers(text: str) -> None:
    assert ask(text).text
    assert ask(text, ARITHMETIC)


@pytest.mark.parametrize("task", ["choose_tool", "choose_args", "think"])
def test_every_kind_of_decision_says_so_too(task: str) -> None:
    facts = {"question": "Who wrote Hamlet?", "tools": [], "tool": "add", "parameters": {}, "steps": []}
    reply = ask([user("Decide.", data=facts)], task=task)  # type: ignore[arg-type]
    assert ONLY in reply.text


def test_an_agent_that_is_asked_anything_else_ends_with_that() -> None:
    found = tool_user(on_error="observe").run_sync("Who wrote Hamlet?", model=OfflineModel(), tools=ARITHMETIC)
    assert found.status == "completed"
    assert found.output.startswith(ONLY)


# -- forms ---------------------------------------------------------------------------------------------------------


class Sum(BaseModel):
    total: float


def test_an_answer_takes_the_form_that_is_asked_for() -> None:
    assert ask("1 / 4", output=Sum).parsed == Sum(total=0.25)
    assert ask("1 + 2", output=int).parsed == 3
    assert json.loads(ask("1 + 2", output={"type": "string"}).text) == "3"
    form = {"type": "object", "properties": {"who": {"type": "array"}}, "required": ["who"]}
    assert ask("1 + 2", output=form).text.startswith(ONLY)


def test_usage_counts_words_and_the_name_is_told() -> None:
    reply = ask("What is 1 + 2?")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.model) == (6, 1, "offline")


@pytest.mark.parametrize(
    ("kind", "text", "chosen"),
    [
        (Classify(choices=CLASSES, result="name"), "I was charged twice: give me my money back.", "billing"),
        (Classify(choices=CLASSES, result="name"), "It does not work on my phone.", "bugs"),
        (Classify(choices=CLASSES, result="name"), "3*7", "other"),
        (Decide(choices=CLASSES, result="name", constrain="never"), "BILLING", "billing"),
        (Decide(yes_no=True, result="yes"), "Shall I say yes?", False),
        (Decide(score=(1, 5), result="score"), "It is a 3, I would say.", 3),
    ],
)
def test_a_choice_is_made_by_the_words_of_the_text(kind: Node, text: str, chosen: object) -> None:
    edges = "\n".join(["START -> it", *(f"it -> END : {outcome}" for outcome in kind.outcomes)])
    graph = Graph(name="choice", state=Mail, nodes={"it": kind}, edges=edges)
    run = graph.run_sync({"question": text}, model=OfflineModel())
    assert (run.status, run.values[str(vars(kind)["result"])]) == ("completed", chosen)


@pytest.mark.parametrize(
    ("name", "description", "found"),
    [
        ("multiply", "Pay.", True),
        ("multiply_numbers", "Pay.", True),
        ("refund", "Multiply the number of packets by the price of one packet.", True),
        ("refund", "Multiply the packets by the price.", False),
        ("multiply_and_pay", "Pay the customer.", False),
        ("multiply_and_pay", "Pay the customer a number of euros.", True),
    ],
)
def test_tools_are_found_by_the_rule_of_the_page(name: str, description: str, found: bool) -> None:
    @tool(name=name, description=description)
    def refund(packets: float, price: float) -> float:
        return packets * price

    reply = ask("3 * 4.2", tools=[refund])
    assert bool(reply.tool_calls) == found
