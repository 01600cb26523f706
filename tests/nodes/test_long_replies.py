"""Long replies of one kind are read in proportion to their length, outside the event loop, and make bounded work."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph
from orchestrator.kernel.records import EffectSettled
from orchestrator.models.reading import NoReading, choice_alone, choice_in, json_in, labelled, parted, unfenced
from orchestrator.models.text.protocol import _ALL
from orchestrator.nodes import Complete
from orchestrator.nodes.extract import find_answer
from orchestrator.nodes.plan import cut_plan, plan_in
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.step_list import MOST_STEPS
from orchestrator.nodes.respond import answer_in, thought_in
from orchestrator.nodes.think import LABELS
from orchestrator.strategies.code_act import code_act
from orchestrator.strategies.llm_compiler import llm_compiler, verdict_in
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.plan_and_execute import plan_and_execute
from orchestrator.strategies.react import react
from orchestrator.strategies.reflexion import reflexion
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.router import router
from orchestrator.strategies.self_ask import self_ask
from orchestrator.strategies.self_consistency import self_consistency
from orchestrator.strategies.tool_user import tool_user
from orchestrator.strategies.tree_of_thoughts import tree_of_thoughts
from orchestrator.tasks import away
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.support.one_node import of_one
from tests.texts.test_readings import FORM_OF, OFFERS

READERS: dict[str, Callable[[str], object]] = {
    "parted": parted,
    "json_in": json_in,
    "unfenced": unfenced,
    "choice_in": lambda text: choice_in(text, {"yes": "", "no": ""}),
    "choice_alone": lambda text: choice_alone(text, ["yes", "no"]),
    "labelled": lambda text: labelled(text, LABELS),
    "cut_plan": cut_plan,
    "steps": lambda text: plan_in(text, "steps"),
    "blueprint": lambda text: plan_in(text, "blueprint"),
    "tasks": lambda text: plan_in(text, "tasks"),
    "verdict_in": verdict_in,
    "thought_in": thought_in,
    "answer_in": lambda text: answer_in(text, "Finish"),
    **{f"answer: {form}": lambda text, form=form: find_answer(text, form) for form in FORM_OF.values()},
    **{f"form {name}": lambda text, form=form: form.parse(text, OFFERS) for name, form in _ALL.items()},
}
BEGINNINGS = ("", '{"steps": ["', "Plan:\n1. a", "Action: Search[", "#E1 = LLM[")
PARTS = (
    "[", "{", "<", "]", '\\"', '"', "\n", "`", "```\n", "#E1 = ", "$1 ", " ", "1", "1. a\n", '{"a":', "[/", "</", "<|",
    "<think>", "</think>", "Final Answer: ", "Action: a[", "Question: a\n", "yes ",
)  # fmt: skip


def work(read: Callable[[str], object], text: str) -> int:
    """Return the number of calls, of Python and of C functions, that reading a text makes."""
    counted = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        with suppress(NoReading, PlanFault):
            read(text)
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize("name", READERS)
def test_the_work_for_a_reply_is_in_proportion_to_its_length(name: str) -> None:
    for beginning in BEGINNINGS:
        for part in PARTS:
            less, more = (work(READERS[name], beginning + part * number) for number in (500, 2000))
            assert more < 6 * max(less, 200), (beginning, part)


@pytest.mark.parametrize("sign", ["[", "<", "{", "</", "[/"])
def test_a_character_that_no_tag_begins_with_costs_no_call(sign: str) -> None:
    assert work(parted, sign * 5000) < 100


LONG = "[ " * 20_000
READING = (
    "reading.py",
    "step_list.py",
    "blueprint.py",
    "tasks.py",
    "extract.py",
    "bracket.py",
    "json_forms.py",
    "llm_compiler.py",
)


@contextmanager
def read_in_the_loop() -> Iterator[set[str]]:
    """Collect the functions of readers that the thread of the event loop calls."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_name != "run"
            and code.co_filename.endswith(READING)
            and len(str(frame.f_locals.get("text", ""))) > 2**15
        ):
            found.add(f"{code.co_filename.rpartition('/')[2]}:{code.co_name}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


class Asked(BaseModel):
    question: str = "?"
    reply: Any = None


GRAPHS: dict[str, Callable[[], Graph]] = {
    "schema": lambda: of_one(Complete(output={"type": "object"}), Asked),
    "router": router,
    "code_act": lambda: code_act(1),
    "llm_compiler": lambda: llm_compiler(1),
    "orchestrator_workers": lambda: orchestrator_workers(1),
    "plan_and_execute in words": lambda: plan_and_execute(1, constrain="never"),
    "react": lambda: react(1),
    "reflexion": lambda: reflexion(1),
    "rewoo": rewoo,
    "self_ask": lambda: self_ask(1),
    "self_consistency": lambda: self_consistency(votes=1),
    "tool_user": lambda: tool_user(1),
    "tree_of_thoughts": lambda: tree_of_thoughts(1),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", GRAPHS)
async def test_a_long_reply_is_read_outside_the_event_loop(name: str) -> None:
    graph, model = GRAPHS[name](), ScriptedModel(lambda _: LONG)
    async with Executor(model=model, tools=tools_from_ref("arithmetic")) as executor:
        with read_in_the_loop() as found:
            await executor.start(graph, {"question": "?"})
    assert model.requests
    assert found <= {"reading.py:parted", "reading.py:_tags"}, "a long reply is only searched for thoughts there"


@pytest.mark.anyio
async def test_a_long_reply_that_waits_for_a_thread_when_its_time_is_over_is_journaled() -> None:
    graph, model = of_one(Complete(prompt="?", timeout=0.5), Asked), ScriptedModel(lambda _: "word " * 10_000)
    busy = threading.Event()
    async with Executor(model=model) as executor, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(away, busy.wait)  # all threads that read replies
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(_later, busy.set)
        run = await executor.start(graph, {"question": "?"})
        records = await executor.store.read(run.run_id)
    assert [record.ok for record in records if isinstance(record, EffectSettled)] == [True]


async def _later(act: Callable[[], None]) -> None:
    await anyio.sleep(1)
    act()


@pytest.mark.parametrize(
    "plan",
    [
        "".join(f"{n}. a\n" for n in range(1, MOST_STEPS + 2)),
        "1. Add it. " + "".join(f"{n}. Add it. " for n in range(2, MOST_STEPS + 2)),
        "- a\n" * (MOST_STEPS + 1),
        json.dumps({"steps": ["a"] * (MOST_STEPS + 1)}),
    ],
)
def test_a_plan_of_very_many_steps_is_refused(plan: str) -> None:
    with pytest.raises(
        PlanFault, match=r"it has (more than )?30[01] steps( on one line: plan fewer|: plan 300 at most)"
    ):
        plan_in(plan, "steps")
