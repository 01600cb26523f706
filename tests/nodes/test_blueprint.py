"""Blueprints: what planners write, and the arguments that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import Tool, tool
from orchestrator.errors import AgentError
from orchestrator.nodes import Step
from orchestrator.nodes.planned_calls import arguments_of, evidence_in
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import PlannedCall, needs_of, read_blueprint
from tests.support.costs import in_proportion
from tests.support.sizes import sized

HENNCHATA = """\
Plan: To find out the name of the cognac house that makes the main ingredient in The Hennchata, I will first search \
for information about The Hennchata on Wikipedia.
#E1 = WikipediaWorker[The Hennchata]

Plan: Once I have the information about The Hennchata, I will look for details about the cognac used in the drink.
#E2 = LLMWorker[What cognac is used in The Hennchata, based on #E1]

Plan: After identifying the cognac, I will search for the cognac house that produces it on Wikipedia.
#E3 = WikipediaWorker[producer of cognac used in The Hennchata]

Plan: Finally, I will extract the name of the cognac house from the Wikipedia page.
#E4 = LLMWorker[What is the name of the cognac house in #E3]
"""


def calls(text: str) -> list[tuple[str, str, str]]:
    return [(call.id, call.tool, call.input) for call in read_blueprint(text)]


def fault(text: str) -> str:
    with pytest.raises(PlanFault) as caught:
        read_blueprint(text)
    return str(caught.value)


# -- reading -------------------------------------------------------------------------------------------------------


def test_s66_s71_the_published_plan_is_two_chains() -> None:
    plan = read_blueprint(HENNCHATA)
    assert [(call.id, call.needs, call.tool, call.input) for call in plan] == [
        ("E1", (), "WikipediaWorker", "The Hennchata"),
        ("E2", ("E1",), "LLMWorker", "What cognac is used in The Hennchata, based on #E1"),
        ("E3", (), "WikipediaWorker", "producer of cognac used in The Hennchata"),
        ("E4", ("E3",), "LLMWorker", "What is the name of the cognac house in #E3"),
    ]
    assert plan[3].thought == "Finally, I will extract the name of the cognac house from the Wikipedia page."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # what stands in the brackets
        ("#E1 = f[a [b] c]", [("E1", "f", "a [b] c")]),
        ("#E1 = f[x[0][1]]", [("E1", "f", "x[0][1]")]),
        ("#E1 = f[[1, 2], [3]]", [("E1", "f", "[1, 2], [3]")]),
        ('#E1 = f[{"q": "a ] b"}]', [("E1", "f", '{"q": "a ] b"}')]),
        ('#E1 = f["a ] b", 2]', [("E1", "f", '"a ] b", 2')]),
        ('#E1 = f[print("]")]', [("E1", "f", 'print("]")')]),
        ('#E1 = f[print("]")\nx[0]]', [("E1", "f", 'print("]")\nx[0]')]),
        ('#E1 = f[a] #E2 = g[#E1, "]"]', [("E1", "f", "a"), ("E2", "g", '#E1, "]"')]),
        ("#E1 = f[a] #E2 = g[b ] c]", [("E1", "f", "a"), ("E2", "g", "b ] c")]),
        ("#E1 = f[a ] b]", [("E1", "f", "a ] b")]),
        ("#E1 = f[what is [x]", [("E1", "f", "what is [x")]),
        ('#E1 = f[5" and 6" pipes]', [("E1", "f", '5" and 6" pipes')]),
        ("#E1 = f[one\n two\n]", [("E1", "f", "one\n two")]),
        ('#E1 = f[x]\n#E2 = g[{"a": #E1, "b": "]"}]', [("E1", "f", "x"), ("E2", "g", '{"a": #E1, "b": "]"}')]),
        ("#E1 = f[]", [("E1", "f", "")]),
        ("#E1 = f(2, (3))", [("E1", "f", "2, (3)")]),
        ("#E1 = f [x]", [("E1", "f", "x")]),
        ("#E1 = Python Interpreter[1 + 1]", [("E1", "Python Interpreter", "1 + 1")]),
        ("#E1 = a.b-c_d[x]", [("E1", "a.b-c_d", "x")]),
        ("#E1 = f[x].", [("E1", "f", "x")]),
        ("#E1 = f[x] (as in [1])", [("E1", "f", "x")]),
        # how a call is marked
        ("#E1: f[x]", [("E1", "f", "x")]),
        ("#E1 := f[x]", [("E1", "f", "x")]),
        ("#E1=f[x]", [("E1", "f", "x")]),
        ("# E1 = f[x]", [("E1", "f", "x")]),
        ("#e1 = f[x]\n#E02 = f[#E1]", [("E1", "f", "x"), ("E2", "f", "#E1")]),
        ("#E1 ← f[x]", [("E1", "f", "x")]),
        ("#E1 f[x]", [("E1", "f", "x")]),
        ("E1 = f[x]", [("E1", "f", "x")]),
        ("Plan: a\n#E1 = f[x]\nPlan: b\n- **E2**: `g`(#E1)", [("E1", "f", "x"), ("E2", "g", "#E1")]),
        ("- #E1 = f[x]", [("E1", "f", "x")]),
        ("  2. #E1 = f[x]", [("E1", "f", "x")]),
        ("**#E1** = `f[x]`", [("E1", "f", "x")]),
        ("**#E1 =** **f**[x]", [("E1", "f", "x")]),
        ("```\n#E1 = f[x]\n```", [("E1", "f", "x")]),
        ("#E1 = f[x] #E2 = g[#E1]", [("E1", "f", "x"), ("E2", "g", "#E1")]),
        ("Plan: look #E1 = f[x]", [("E1", "f", "x")]),
        ("Plan: #E1 = f[x]\nPlan: #E2 = g[#E1]", [("E1", "f", "x"), ("E2", "g", "#E1")]),
        ("Plan: a. #E1 = f[x]\nPlan: by #E1. #E2 = g[#E1]", [("E1", "f", "x"), ("E2", "g", "#E1")]),
        ("#E1 = f['the \"a\" of [x]']", [("E1", "f", "'the \"a\" of [x]'")]),
        ("#E1 = f[{'a': #E2}]\n#E2 = g[]", [("E1", "f", "{'a': #E2}"), ("E2", "g", "")]),
        ("#E2 = f[#E10]\n#E10 = f[x]", [("E2", "f", "#E10"), ("E10", "f", "x")]),
        # what is around
        ("Sure! Here you go:\n\n#E1 = f[x]\n\nThat is all.", [("E1", "f", "x")]),
        ("#E1 = f[x]\n<END_OF_PLAN>\n#E2 = f[y]", [("E1", "f", "x")]),
        ("<think>\n#E1 = g[no]\n</think>\n#E1 = f[x]", [("E1", "f", "x")]),
        ("#E1 = f[x]\nPlan: Now it can be answered.", [("E1", "f", "x")]),
        # no call: the text itself is the evidence
        ("#E1 = 42", [("E1", "", "42")]),
        ("#E1 = The answer (as said).\n#E2 = f[#E1]", [("E1", "", "The answer (as said)."), ("E2", "f", "#E1")]),
    ],
)
def test_what_models_make_of_the_form_is_read(text: str, found: list[tuple[str, str, str]]) -> None:
    assert calls(text) == found


@pytest.mark.parametrize(
    ("text", "thoughts"),
    [
        ("Plan: a\n#E1 = f[x]\nPlan: b\n#E2 = f[x]", ["a", "b"]),
        ("#Plan1: a\n#E1: f[x]\n#Plan2: b\n#E2: f[x]", ["a", "b"]),
        ("Plan 1: a\n#E1 = f[x]\nStep 2: b\n#E2 = f[x]", ["a", "b"]),
        ("1. **Plan:** a\n#E1 = f[x]\n2. **Plan:** b\n#E2 = f[x]", ["a", "b"]),
        ("## Plan: a\n#E1 = f[x]\nplan：b\n#E2 = f[x]", ["a", "b"]),
        ("Plan: a\n#E1 = f[x]\n#E2 = f[x]", ["a", ""]),
        ("Plan:\nPlan: a\nPlan: b\n#E1 = f[x]\nso\n#E2 = f[y]", ["a b", ""]),
        ("Plan: a\n  goes on: so [x]\n#E1 = f[x]\n#E2 = f[y]", ["a goes on: so [x]", ""]),
    ],
)
def test_plans_go_with_the_calls_behind_them(text: str, thoughts: list[str]) -> None:
    assert [call.thought for call in read_blueprint(text)] == thoughts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no call"),
        ("I cannot plan that.", "it has no call"),
        ("Plan: think\nPlan: think again", "it has no call"),
        ("1. Look it up\n2. Answer", "it has no call"),
        ("E1 = x", "it has no call"),
        ("#E1 = ", "#E1 calls nothing"),
        ("#E1 = f[x", "#E1 has a bracket that is not closed"),
        ("#E1 = f[", "#E1 has a bracket that is not closed"),
        ("#E1 = f[x\nPlan: more\n#E2 = f[#E1]", "#E1 has a bracket that is not closed"),
        ("#E1 = f[x] + g[y]", "#E1 contains several calls: give each its own number"),
        ("#E1 = f[x] and g[y]", "#E1 contains several calls"),
        ("#E1 = f(x) and `g`(y)", "#E1 contains several calls"),
        ("#E1 = f[x]\n#E1 = g[y]", "#E1 occurs twice: give each call its own number"),
        ("#E1 = f[x]\n#E01 = g[y]", "#E1 occurs twice"),
        ("#E1 = f[#E1]", "#E1 uses itself"),
        ("#E1 = f[#E2]\n#E2 = f[#E1]\n#E3 = f[#E2]", "#E1, #E2 depend on each other in a circle"),
        ("#E1 = f[#E2]", "#E1 uses #E2, which is not in the plan"),
        ("#E1 = f[#E10]", "#E1 uses #E10, which is not in the plan"),
        ("".join(f"#E{number} = f[x]\n" for number in range(301)), "it has more than 300 calls: plan fewer"),
        ("#E1 = f[#E2]\n#E3 = f[#E3]", "#E1 uses #E2, which is not in the plan; #E3 uses itself"),
    ],
)
def test_what_cannot_be_used_is_said_in_full(text: str, words: str) -> None:
    assert words in fault(text)


def test_a_fault_in_one_call_is_no_fault_of_those_that_use_it() -> None:
    assert fault("#E1 = f[x\n#E2 = f[#E1]").count("#E") == 1


@pytest.mark.parametrize(
    "part",
    [
        "#E1 = ",
        '"a\\\\',
        "a_",
        "*",
        " ",
        "[]",
        "#E1 = f[",
        '{"a":',
        "Plan: x ",
        "```\n",
        "'",
        "E1 ",
        "<think>",
        "- ",
        "#E1 = f[\n",
        "\t",
        "#",
        "<",
        "0",
        '\\"',
        "#E0",
        "plan ",
        "#E1 = a",
        "x #E1 = f[\n",
        "x #E1 = f[x] `\n",
    ],
)
def test_reading_takes_time_in_proportion(part: str) -> None:
    def read(length: int) -> None:
        many = part * (length // len(part))
        for form in ("{}", "#E1 = f[{}", "{}#E1 = f[x]", "#E1 = f[x]\n{}", "plan{}x", "<{}x", "#E{}x", "#E1 = f {}x"):
            with suppress(PlanFault):
                read_blueprint(form.format(many))

    in_proportion(read, sized(2_000, 5_000))


def test_a_plan_without_end_is_not_read_and_its_faults_are_not_all_told() -> None:
    assert fault("#E1 = f[" + "x" * 100_000 + "]") == (
        "it has more than 100000 characters: plan fewer calls, with shorter inputs"
    )
    assert calls("<think>" + "x" * 100_000 + "</think>#E1 = f[x]") == [("E1", "f", "x")]
    many = fault("".join(f"#E{number} = f[\n" for number in range(5000)))
    assert (len(many) < 5000, many.endswith("; 4980 more faults like these")) == (True, True)


names = st.from_regex(r"[a-z][a-z0-9_.-]{0,7}", fullmatch=True)
words = st.text(st.characters(exclude_characters='[]"\\', exclude_categories=("C", "Z")), max_size=20).map(
    lambda text: text.replace("#", "")
)


@st.composite
def plans(draw: st.DrawFn) -> list[PlannedCall]:
    numbers = draw(st.lists(st.integers(0, 120), min_size=1, max_size=8, unique=True))
    found: list[PlannedCall] = []
    for number in numbers:
        parts = [draw(words)]
        for need in draw(st.lists(st.sampled_from(found), max_size=3)) if found else []:
            parts += [f"#{need.id}", draw(words)]
        text = " ".join(parts)
        given_ = draw(st.sampled_from((text, f"[{text}] and [x]", f"{text} [[y]]"))).strip()
        found.append(PlannedCall(id=f"E{number}", needs=needs_of(given_), tool=draw(names), input=given_))
    return draw(st.permutations(found))


@pytest.mark.full
@settings(max_examples=sized(20, 60), deadline=None)
@given(plans(), st.sampled_from(("\n", "\n\n", "\nPlan: so\n")))
def test_what_is_written_in_the_form_is_read_as_it_is(plan: list[PlannedCall], between: str) -> None:
    text = between.join(f"#{call.id} = {call.written}" for call in plan)
    assert [call.model_copy(update={"thought": ""}) for call in read_blueprint(text)] == plan


@settings(max_examples=sized(50, 150), deadline=None)
@given(st.lists(st.sampled_from([*'1 2=[]()"{},:\n*`_', "Plan:", "#E1", "#E2 = f[", "\n#E3 = g", "<END_OF_PLAN>"])))
def test_any_text_is_a_plan_or_a_fault(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        plan = read_blueprint(text)
    except PlanFault:
        return
    known = {call.id for call in plan}
    assert plan
    assert all(set(call.needs) <= known - {call.id} for call in plan)


# -- evidence and arguments ----------------------------------------------------------------------------------------


def step(output: Any, code: int = 0) -> Step:
    return Step(question="", tool_choice="f", tool_exit_code=code, tool_output=output)


EVIDENCE: Mapping[str, Step] = {
    "E1": step(8),
    "E2": step('see #E1, "x"] = y'),
    "E3": step("no paper", 1),
    "E10": step([1, {"a": None}]),
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#E1", 8),
        (" #e01 ", 8),
        ("#E10", [1, {"a": None}]),
        ("#E1 and #E10", '8 and [1, {"a": null}]'),
        ("#E1#E1", "88"),
        ("a #E2 b", 'a see #E1, "x"] = y b'),
        ("#E2", 'see #E1, "x"] = y'),
        ("#E3", "Error: no paper"),
        ("#E1x #E1_ E1", "#E1x #E1_ E1"),
        ("#E1的", "8的"),
        ("#E4", "Error: there is no evidence E4"),
    ],
)
def test_evidence_is_put_in_once_and_keeps_its_type_alone(text: str, found: object) -> None:
    assert evidence_in(text, EVIDENCE) == found


@settings(max_examples=sized(33, 100), deadline=None)
@given(st.text(max_size=30), st.lists(st.sampled_from(("#E1", "#E10", " ", "x", "#E100")), min_size=2, max_size=8))
def test_one_number_is_never_taken_for_another(said: str, parts: list[str]) -> None:
    evidence = {name: step(f"<{name}{said}>") for name in ("E1", "E10", "E100")}
    text = ".".join(parts)
    wanted = ".".join(f"<{part[1:]}{said}>" if part[0] == "#" else part for part in parts)
    assert evidence_in(text, evidence) == wanted


@tool
def multiply(a: float, b: float) -> float:
    """Multiply."""
    return a * b


@tool
def search(query: str, limit: int = 3) -> str:
    """Search."""
    return query * limit


@tool
def total(numbers: list[float]) -> float:
    """Add all."""
    return sum(numbers)


@tool
def note(text: str, about: str, tags: list[str] | None = None, loud: bool = False) -> str:
    """Write down."""
    return text + about + str(tags) + str(loud)


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


@pytest.mark.parametrize(
    ("which", "text", "args"),
    [
        # one text: all of it
        (search, "The Hennchata", {"query": "The Hennchata"}),
        (search, "Paris, France", {"query": "Paris, France"}),
        (search, "60", {"query": "60"}),
        (search, "O'Neil's, it's", {"query": "O'Neil's, it's"}),
        (search, '"quoted, text"', {"query": "quoted, text"}),
        (search, "'quoted'", {"query": "quoted"}),
        (search, "'The \"a\" in #E1'", {"query": 'The "a" in 8'}),
        (search, '"Hometown of #E1"', {"query": "Hometown of 8"}),
        (search, '"a" or "b"', {"query": '"a" or "b"'}),
        (search, '["a", "b"]', {"query": '["a", "b"]'}),
        (search, "a #E1 b", {"query": "a 8 b"}),
        (search, "#E1", {"query": "8"}),
        (search, "#E10", {"query": '[1, {"a": null}]'}),
        (search, "#E2", {"query": 'see #E1, "x"] = y'}),
        (search, "#E3", {"query": "Error: no paper"}),
        # by name
        (search, '{"query": "q #E1", "limit": #E1}', {"query": "q 8", "limit": 8}),
        (search, '{"query": "#E1"}', {"query": "8"}),
        (search, "query=a, b, limit=2", {"query": "a, b", "limit": 2}),
        (search, "query: a, limit: #E1", {"query": "a", "limit": 8}),
        (multiply, "b=#E1, a=2", {"a": 2, "b": 8}),
        (search, "{'query': 'the \"x\" of #E1', 'limit': #E1,}", {"query": 'the "x" of 8', "limit": 8}),
        # by place
        (multiply, "2, 4", {"a": 2, "b": 4}),
        (multiply, "#E1,0.5", {"a": 8, "b": 0.5}),
        (multiply, '{"a": "2", "b": #E1}', {"a": 2, "b": 8}),
        (multiply, "'2', \"3\"", {"a": 2, "b": 3}),
        (note, "#E2, 'a, b', [\"x, y\", \"#E1\"], true", {
            "text": 'see #E1, "x"] = y', "about": "a, b", "tags": ["x, y", "8"], "loud": True,
        }),
        (note, "f(1, 2), [3, 4]", {"text": "f(1, 2)", "about": "[3, 4]"}),
        # one list
        (total, "1, 2, #E1", {"numbers": [1, 2, 8]}),
        (total, "[1, #E1]", {"numbers": [1, 8]}),
        (total, "[]", {"numbers": []}),
        (total, "(1, 2, )", {"numbers": [1, 2]}),
        # none
        (now, "", {}),
        (now, "none", {}),
    ],
)  # fmt: skip
def test_s70_an_input_is_read_by_the_tools_schema(which: Tool, text: str, args: dict[str, Any]) -> None:
    call = PlannedCall(id="E99", tool=which.name, input=text)
    found = which.validate(arguments_of(call, EVIDENCE, which.parameters))
    if which is note:
        args = {"tags": None, "loud": False, **args} if "tags" in found else args
    assert found == args


@pytest.mark.parametrize(
    ("which", "text", "words"),
    [
        (multiply, "1, 2, 3", "'multiply' takes 2 inputs (a, b), and 3 are given"),
        (search, '{"x": 1}', "'x' is unknown"),
        (search, "{'query': it}", "the input of 'search' is not JSON"),
        (now, "what time is it", "'now' takes no input, and 'what time is it' is given: leave its input empty"),
        (multiply, "2", "'b' is missing"),
        (multiply, "#E3, 1", "'a' must be a number"),
        (multiply, "#E2, 1", "'a' must be a number"),
        (multiply, '{"a": 1, "c": 2}', "'c' is unknown"),
        (search, '{"query": "x", "much": 2}', "'much' is unknown"),
        (search, "", "'query' is missing"),
    ],
)
def test_an_input_that_does_not_fit_says_why(which: Tool, text: str, words: str) -> None:
    call = PlannedCall(id="E99", tool=which.name, input=text)
    with pytest.raises(AgentError) as caught:
        which.validate(arguments_of(call, EVIDENCE, which.parameters))
    assert words in str(caught.value)
