"""`Classify`: a model says which class a text belongs to, and the graph takes the edge of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Executor, Graph, Run
from orchestrator.errors import InvalidGraph
from orchestrator.models import Reply
from orchestrator.nodes import Classify
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio

CHOICES = {"billing": "about money", "bugs": "what does not\n  work", "other": "everything else"}


class Mail(BaseModel):
    question: str = "I was charged twice."
    kind: str = ""


def graph(it: Classify, state: Any = Mail) -> Graph:
    ends = "\n".join(f"it -> END : {name}" for name in it.outcomes)
    return Graph(name="g", state=state, nodes={"it": it}, edges=f"START -> it\n{ends}")


async def classified(it: Classify, *replies: Any) -> tuple[str | None, Run, ScriptedModel]:
    async with executing(replies) as (executor, model):
        found = await executor.start(graph(it), {})
        points = await executor.history(found.run_id)
    return points[-1].outcome, found, model


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ('{"choice": "billing"}', "billing"),
        ('```json\n{"choice": "Bugs"}\n```', "bugs"),
        ("bugs", "bugs"),
        ('"Other."', "other"),
        ("**billing**", "billing"),
        ("```\nbilling\n```", "billing"),
    ],
)
async def test_a_reply_that_names_a_class_takes_its_outcome(reply: str, chosen: str) -> None:
    outcome, found, model = await classified(Classify(choices=CHOICES, result="kind"), reply)
    assert (outcome, found.values["kind"]) == (chosen, chosen)
    (request,) = model.requests
    assert request.task == "classify"
    assert request.output is not None
    assert request.output["properties"] == {"choice": {"type": "string", "enum": ["billing", "bugs", "other"]}}
    assert "bugs: what does not work" in request.messages[-1].content
    assert request.messages[-1].data == {"text": "I was charged twice.", "choices": CHOICES}


@pytest.mark.parametrize(
    "reply",
    [
        "It is about billing.", "not billing", "billing, bugs", "", '{"choice": "money"}', '{"choice": null}',
        '{"choice": "bugs", "or": "billing"}', "[]", '["bugs", "other"]', "1", "null",
    ],
)  # fmt: skip
async def test_another_reply_is_corrected_within_bounds(reply: str) -> None:
    outcome, _, model = await classified(Classify(choices=CHOICES), reply, "bugs")
    assert outcome == "bugs"
    assert "names none of the classes.\nAnswer with the name of one of the classes: billing, bugs, other." in (
        model.requests[1].messages[-1].content
    )
    if reply:
        assert model.requests[1].messages[-2].content == reply
    _, found, _ = await classified(Classify(choices=CHOICES, retries=0), reply)
    assert error_of(found) == (
        "AgentError", f"it: the reply {reply!r} names none of the classes: billing, bugs, other",
    )  # fmt: skip


async def test_a_refused_reply_fails() -> None:
    _, found, _ = await classified(Classify(choices=CHOICES), Reply(text="no", finish="content_filter"))
    assert error_of(found)[0] == "AgentError"


async def test_a_reply_that_is_cut_off_is_corrected_unless_the_name_is_there() -> None:
    outcome, _, _ = await classified(Classify(choices=CHOICES), Reply(text="bugs: what does", finish="length"))
    assert outcome == "bugs"
    outcome, _, _ = await classified(Classify(choices=CHOICES), Reply(text="bugs", finish="length"), "bugs")
    assert outcome == "bugs"
    cut = Reply(text="The text is about", finish="length")
    outcome, _, model = await classified(Classify(choices=CHOICES), cut, "bugs")
    assert outcome == "bugs"
    assert "it was cut off, because it is too long" in model.requests[1].messages[-1].content
    _, found, _ = await classified(Classify(choices=CHOICES, retries=0), cut)
    assert error_of(found)[1].endswith("was cut off; give the model more max_tokens")


async def test_never_constrained_it_asks_in_words_only() -> None:
    outcome, _, model = await classified(Classify(choices=CHOICES, constrain="never"), "bugs")
    assert (outcome, model.requests[0].output) == ("bugs", None)


@pytest.mark.parametrize(
    ("choices", "words"),
    [({"a": "x"}, "nothing to choose"), ({"a": "x", "A": "y"}, "differ in case alone"), ({}, "nothing to choose")],
)
def test_choices_that_are_none_are_refused(choices: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Classify(choices=choices)


def test_each_class_needs_an_edge() -> None:
    with pytest.raises(InvalidGraph, match="outcome 'other' of it has no edge"):
        Graph(
            name="g", state=Mail, nodes={"it": Classify(choices=CHOICES)},
            edges="START -> it\nit -> END : billing\nit -> END : bugs",
        )  # fmt: skip
    with pytest.raises(InvalidGraph, match="port 'text' of it is 'question', and state S has no such field"):
        graph(Classify(choices=CHOICES), {"name": "S", "fields": {}})


async def test_it_is_data_in_its_order_and_survives_crashes(tmp_path: Path) -> None:
    it = Classify(choices={"zebra": "z", "apple": "a"}, model="cheap")
    made = graph(it, {"name": "S", "fields": {"question": {"type": "str", "default": "x"}}})
    made.save(tmp_path / "g.yaml")
    again = Graph.load(tmp_path / "g.yaml")
    assert again.content == made.content
    assert again.nodes["it"].outcomes == ("zebra", "apple")
    async with Executor(models={"cheap": ScriptedModel(["apple"])}) as executor:
        assert (await executor.start(again, {})).status == "completed"
    plain = graph(it.with_(model=None), Mail)
    await assert_crash_safe(plain, {}, setup=lambda: {"model": ScriptedModel(["hm", "zebra"])})


def test_its_second_line_says_how_many_classes_there_are() -> None:
    assert "chooses one of 3" in graph(Classify(choices=CHOICES)).to_text()
