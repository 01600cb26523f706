"""`Decide`: a model decides between choices, yes and no, or scores, and how sure it is decides the outcome."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Executor, Graph, Run
from orchestrator.errors import InvalidGraph
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.models.middleware import Cassette, with_middleware
from orchestrator.nodes import Classify, Decide
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.nodes.test_classify import CHOICES
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio

OTHERS = {"yes": "no", "no": "yes", "billing": "bugs", "bugs": "billing", "7": "8"}


class Mail(BaseModel):
    question: str = "The server is down!"
    urgent: bool | None = None
    kind: str = ""
    score: int = 0
    sure: float | None = 2.0


def weighed(choice: str, share: float | None) -> Reply:
    """A reply that names a choice, with this probability; None: without log probabilities."""
    if share is None:
        return Reply(text=f'{{"choice": "{choice}"}}')
    other = {OTHERS[choice]: log(max(1e-9, 1 - share))}
    tokens: Any = [['{"choice": "', 0, {}], [choice, log(share), other], ['"}', 0, {}]]
    return Reply(text=f'{{"choice": "{choice}"}}', details={"logprobs": tokens})


def graph(it: Decide | Classify, state: Any = Mail) -> Graph:
    ends = "\n".join(f"it -> END : {name}" for name in it.outcomes)
    return Graph(name="g", state=state, nodes={"it": it}, edges=f"START -> it\n{ends}")


async def decided(it: Decide | Classify, *replies: Any) -> tuple[str | None, Run, ModelRequest]:
    async with executing(replies) as (executor, model):
        run = await executor.start(graph(it), {})
        points = await executor.history(run.run_id)
    return points[-1].outcome, run, model.requests[-1]


@pytest.mark.parametrize(
    ("share", "threshold", "outcome"),
    [
        (0.95, 0.9, "yes"),
        (0.9, 0.9, "yes"),
        (0.89, 0.9, "unsure"),
        (None, 0.9, "unsure"),
        (None, None, "yes"),
        (0.1, None, "yes"),
        (1.0, 1, "yes"),
    ],
)
async def test_a_choice_below_the_threshold_or_of_unknown_probability_is_unsure(
    share: float | None, threshold: float | None, outcome: str
) -> None:
    it = Decide(yes_no=True, threshold=threshold, result="urgent", probability="sure")
    found, run, request = await decided(it, weighed("yes", share))
    assert (found, run.values["urgent"]) == (outcome, True)
    assert run.values["sure"] == (None if share is None else pytest.approx(share, abs=1e-3))
    assert request.options == {"logprobs": True}


async def test_probabilities_are_asked_for_only_if_something_uses_them() -> None:
    _, run, request = await decided(Decide(yes_no=True, result="urgent"), weighed("no", None))
    assert (run.values["urgent"], run.values["sure"], request.options) == (False, 2.0, {})
    assert request.task == "decide"
    assert request.output is not None
    assert request.output["properties"] == {"choice": {"type": "string", "enum": ["yes", "no"]}}


async def test_choices_scores_and_criteria() -> None:
    choices = Decide(criteria="What is it about?", choices=CHOICES, result="kind", threshold=0.5)
    outcome, run, request = await decided(choices, weighed("billing", 0.6))
    assert (outcome, run.values["kind"]) == ("billing", "billing")
    assert request.messages[-1].content == (
        "What is it about?\n\nPossible answers:\nbilling: about money\nbugs: what does not work\n"
        "other: everything else\n\nText:\nThe server is down!"
    )
    assert request.messages[-1].data == {
        "text": "The server is down!",
        "choices": CHOICES,
        "criteria": "What is it about?",
    }
    score = Decide(score=(1, 10), result="score", threshold=0.5)
    outcome, run, request = await decided(score, weighed("7", 0.6))
    assert (outcome, run.values["score"]) == ("done", 7)
    assert "a whole number from 1 (lowest) to 10 (highest)" in request.messages[-1].content
    outcome, run, _ = await decided(score, weighed("7", 0.4))
    assert (outcome, run.values["score"]) == ("unsure", 7)
    outcome, run, _ = await decided(score, "11", '{"choice": 7}')
    assert (outcome, run.values["score"]) == ("unsure", 7)


async def test_classify_has_the_same_threshold_and_probability() -> None:
    it = Classify(choices=CHOICES, threshold=0.8, result="kind", probability="sure")
    assert it.outcomes == ("billing", "bugs", "other", "unsure")
    for share, expected in ((0.9, "billing"), (0.7, "unsure"), (None, "unsure")):
        outcome, run, _ = await decided(it, weighed("billing", share))
        assert (outcome, run.values["kind"]) == (expected, "billing")
    assert "threshold" not in Graph.from_data(graph(Classify(choices=CHOICES)).data()).data()["nodes"]["it"]  # type: ignore[index]


async def test_a_reply_that_names_no_choice_is_corrected_within_bounds() -> None:
    outcome, _, request = await decided(Decide(yes_no=True), "maybe", "no")
    assert outcome == "no"
    assert request.messages[-1].content.endswith("Answer with one of these, and with nothing else: yes, no.")
    _, run, _ = await decided(Decide(yes_no=True, retries=0), "maybe")
    assert error_of(run) == ("AgentError", "it: the reply 'maybe' names none of the possible answers: yes, no")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "set exactly one of choices=, yes_no=True and score="),
        ({"yes_no": True, "score": (1, 3)}, "set exactly one"),
        ({"choices": {"a": ""}}, "nothing to choose"),
        ({"choices": {"a": "", "A": ""}}, "differ in case alone"),
        ({"choices": {"a": "", "unsure": ""}, "threshold": 0.5}, "rename that choice"),
        ({"score": (3, 3)}, "give the lowest and the highest score"),
        ({"score": (1, 1000)}, "at most 100 apart"),
        ({"score": (1.5, 2)}, "int"),
        ({"yes_no": True, "threshold": 0}, "greater than 0"),
        ({"yes_no": True, "threshold": 1.1}, "less than or equal to 1"),
        ({"yes_no": True, "threshold": float("nan")}, "threshold"),
        ({"yes_no": True, "prompt": "{state}"}, "nothing fills {state}"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Decide(**fields)


def test_each_outcome_needs_an_edge_and_each_port_a_field_of_its_type() -> None:
    with pytest.raises(InvalidGraph, match="outcome 'unsure' of it has no edge"):
        Graph(
            name="g",
            state=Mail,
            nodes={"it": Decide(yes_no=True, threshold=0.5)},
            edges="START -> it\nit -> END : yes\nit -> END : no",
        )
    for it in (Decide(yes_no=True, result="score"), Decide(score=(1, 2), result="kind")):
        with pytest.raises(InvalidGraph, match="port 'result' of it"):
            graph(it)


async def test_it_is_data_in_its_order_and_survives_crashes(tmp_path: Path) -> None:
    it = Decide(choices={"zebra": "z", "apple": "a"}, threshold=0.5, probability="sure", result="kind")
    made = graph(it)
    made.save(tmp_path / "g.yaml")
    again = Graph.load(tmp_path / "g.yaml", trust=["tests"])
    assert again.content == made.content
    assert again.nodes["it"].outcomes == ("zebra", "apple", "unsure")
    tokens: Any = [["zebra", log(0.7), {"apple": log(0.3)}]]
    await assert_crash_safe(
        made, {}, setup=lambda: {"model": ScriptedModel(["hm", Reply(text="zebra", details={"logprobs": tokens})])}
    )


async def test_a_replay_a_fork_and_a_cassette_have_the_same_probability(tmp_path: Path) -> None:
    made = graph(Decide(yes_no=True, threshold=0.5, probability="sure"))
    for mode, replies in (("record", [weighed("yes", 0.6)]), ("replay", [])):
        with Cassette(tmp_path / "c.json", mode) as cassette:  # type: ignore[arg-type]
            run = await made.run({}, model=with_middleware(ScriptedModel(replies), cassette))
            assert run.values["sure"] == pytest.approx(0.6, abs=1e-3)
    async with Executor(model=ScriptedModel([weighed("yes", 0.7), weighed("no", 0.9)])) as executor:
        run = await executor.start(made, {})
        replayed = await executor.replay(run.run_id)
        assert replayed.run.values["sure"] == run.values["sure"] == pytest.approx(0.7, abs=1e-3)
        forked = await executor.fork(run.run_id, at=1)
        assert forked.values["sure"] == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(
    ("it", "words"),
    [
        (Decide(yes_no=True), "decides yes or no"),
        (Decide(score=(-5, 5)), "gives a score from -5 to 5"),
        (Decide(choices=CHOICES), "decides between 3"),
    ],
)
def test_its_second_line(it: Decide, words: str) -> None:
    assert words in graph(it).to_text()
