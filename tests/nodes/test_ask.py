"""`Ask`: a person gives a value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field, JsonValue, SecretStr, ValidationError

from orchestrator import Approve, Deny, Executor, Graph, Question, Run, append, node
from orchestrator.errors import InvalidAnswer, InvalidGraph, QuestionUnknown, SecretInState, StaleAnswer
from orchestrator.nodes import Ask
from tests.support.one_node import error_of, executing, of_one

pytestmark = pytest.mark.anyio


class Form(BaseModel):
    name: str = "Ann"
    tags: list[str] = ["a", "b"]
    reply: str = ""
    age: int = 0
    kind: str = ""
    said: Annotated[list[str], append] = []
    small: Annotated[int, Field(le=9)] = 0
    runs: int = 0


async def asked(executor: Executor, ask: Ask) -> tuple[Run, Question]:
    run = await executor.start(of_one(ask, Form), {})
    assert run.status == "paused"
    (question,) = run.waiting
    return run, question


async def test_it_waits_shows_and_writes_the_answer(store: str) -> None:
    async with executing(store=store) as (executor, _):
        run, question = await asked(executor, Ask(prompt="{name}, which of {tags}?", show=("name", "tags")))
        assert (question.kind, question.node, question.prompt) == ("input", "it", "Ann, which of ['a', 'b']?")
        assert question.payload == {"name": "Ann", "tags": ["a", "b"]}
        assert (question.choices, question.schema, question.deadline) == ((), None, None)
        run = await executor.answer(run.run_id, question.id, "the first", by="ann")
    assert (run.status, run.values["reply"]) == ("completed", "the first")


async def test_a_braces_in_what_is_shown_is_no_placeholder() -> None:
    async with executing() as (executor, _):
        run = await executor.start(of_one(Ask(prompt="{name}?", show=("name",)), Form), {"name": "{tags}"})
    assert run.waiting[0].prompt == "{tags}?"


async def test_nothing_before_it_runs_again(store: str) -> None:
    @node
    def count(state: Form) -> dict[str, object]:
        counted.append(1)
        return {"runs": state.runs + 1}

    counted: list[int] = []
    graph = Graph(
        name="two", state=Form, nodes={"count": count, "ask": Ask(prompt="?")}, edges="START -> count -> ask -> END"
    )
    async with executing(store=store) as (executor, _):
        run = await executor.start(graph, {})
        run = await executor.answer(run.run_id, run.waiting[0].id, "x")
    assert (run.status, run.values["runs"], counted) == ("completed", 1, [1])


async def test_it_outlives_the_executor(tmp_path: Path) -> None:
    store, graph = f"sqlite:///{tmp_path}/runs.db", of_one(Ask(prompt="?"), Form)
    async with Executor(store) as executor:
        paused = await executor.start(graph, {})
    async with Executor(store) as executor:  # somebody answers who has no code
        await executor.answer(paused.run_id, paused.waiting[0].id, "x", resume=False)
    async with Executor(store, graphs=[graph]) as executor:
        assert (await executor.resume(paused.run_id)).values["reply"] == "x"


async def test_only_choices_are_taken_and_a_refused_answer_changes_nothing(store: str) -> None:
    async with executing(store=store) as (executor, _):
        run, question = await asked(executor, Ask(prompt="?", answer="kind", choices=("new", "old")))
        assert question.choices == ("new", "old")
        for wrong in ("other", "", None, 1, Approve()):
            with pytest.raises(InvalidAnswer):
                await executor.answer(run.run_id, question.id, wrong)
        assert (await executor.load(run.run_id)).seq == run.seq
        run = await executor.answer(run.run_id, question.id, "old")
        assert run.values["kind"] == "old"
        with pytest.raises(StaleAnswer, match="is closed; each question is answered once"):
            await executor.answer(run.run_id, question.id, "new")
        with pytest.raises(QuestionUnknown):
            await executor.answer(run.run_id, "nobody", "new")


async def test_an_answer_is_plain_json() -> None:
    for accepts in (None, {"type": "array"}):
        async with executing() as (executor, _):
            run, question = await asked(executor, Ask(prompt="?", answer="tags", accepts=accepts))
            for wrong in (object(), float("nan"), {"a": object()}):
                with pytest.raises(InvalidAnswer):
                    await executor.answer(run.run_id, question.id, wrong)
            with pytest.raises(SecretInState):
                await executor.answer(run.run_id, question.id, SecretStr("s3cret-value"))
            assert (await executor.load(run.run_id)).seq == run.seq
            run = await executor.answer(run.run_id, question.id, ("x", "y"))
        assert (run.status, run.values["tags"]) == ("completed", ["x", "y"])


@pytest.mark.parametrize(
    ("accepts", "good", "bad"),
    [
        ({"type": "integer"}, 5, ["5", 1.5, True, None]),
        ({"type": "integer", "minimum": 1, "maximum": 9}, 5, [0, 10]),
        ({"enum": [1, 2]}, 2, [3, "1"]),
        ({"anyOf": [{"const": 7}, {"type": "integer", "maximum": 0}]}, 7, [8, "x"]),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 3, ["x"]),
    ],
)
async def test_an_answer_fits_the_schema(accepts: dict[str, JsonValue], good: Any, bad: list[Any]) -> None:
    async with executing() as (executor, _):
        run, question = await asked(executor, Ask(prompt="?", answer="age", accepts=accepts))
        assert question.schema == accepts
        for wrong in bad:
            with pytest.raises(InvalidAnswer, match=f"question '{question.id}'"):
                await executor.answer(run.run_id, question.id, wrong)
        run = await executor.answer(run.run_id, question.id, good)
    assert (run.status, run.values["age"]) == ("completed", good)


async def test_what_the_field_does_not_take_is_asked_for_again() -> None:
    async with executing() as (executor, _):
        run, first = await asked(executor, Ask(prompt="How old?", answer="age"))
        run = await executor.answer(run.run_id, first.id, "old")
        (second,) = run.waiting
        assert second.id != first.id
        assert second.prompt.startswith("How old? (")
        run = await executor.answer(run.run_id, second.id, 42)
    assert (run.status, run.values["age"]) == ("completed", 42)


async def test_what_a_constraint_of_the_field_does_not_take_is_asked_for_again() -> None:
    async with executing() as (executor, _):
        run, first = await asked(executor, Ask(prompt="How many?", answer="small"))
        run = await executor.answer(run.run_id, first.id, 10)
        assert run.status == "paused"
        run = await executor.answer(run.run_id, run.waiting[0].id, 9)
    assert (run.status, run.values["small"]) == ("completed", 9)


async def test_a_field_with_a_reducer_collects() -> None:
    async with executing() as (executor, _):
        run, question = await asked(executor, Ask(prompt="?", answer="said"))
        run = await executor.answer(run.run_id, question.id, "x")
    assert run.values["said"] == ["x"]


@pytest.mark.parametrize(
    ("deny", "message"), [(Deny(), "? was not answered"), (Deny(reason="busy"), "? was not answered: busy")]
)
async def test_who_will_not_answer_fails_the_step(deny: Deny, message: str) -> None:
    async with executing() as (executor, _):
        run, question = await asked(executor, Ask(prompt="?"))
        run = await executor.answer(run.run_id, question.id, deny)
    assert error_of(run) == ("UserDenied", message)


async def test_nobody_is_waited_for_longer_than_the_deadline() -> None:
    async with executing(idle="sleep") as (executor, _):
        run, question = await asked(executor, Ask(prompt="?", deadline=0.05))
        assert question.deadline is not None
        await anyio.sleep(0.1)
        run = await executor.resume(run.run_id)
    assert error_of(run) == ("UserDenied", "? was not answered: deadline passed")


def test_what_is_wrong_is_said_when_it_is_built() -> None:
    with pytest.raises(ValidationError, match=r"nothing fills \{name\}"):
        Ask(prompt="{name}?")
    with pytest.raises(InvalidGraph, match="nobody"):
        of_one(Ask(prompt="?", answer="nobody"), Form)
    with pytest.raises(InvalidGraph, match="missing"):
        of_one(Ask(prompt="?", show=("missing",)), Form)
