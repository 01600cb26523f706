"""The contract of records: their types, that they are frozen, versioned data, and what is documented of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, append, node
from orchestrator.executor import EVENT_TYPES
from orchestrator.kernel.records import Record, decode, encode
from tests.support.sources import text_of

TYPES = (
    "run_started", "step_done", "effect_intended", "effect_settled", "asked", "answered", "event_received",
    "timer_set", "timer_fired", "step_failed", "step_retried", "paused", "resumed", "cancelled", "forked", "migrated",
    "limits_changed", "ended", "answers_withdrawn",
)  # fmt: skip
LIVE = ("step_started", "token", "progress", "emitted")


class State(BaseModel):
    log: Annotated[list[str], append] = []


@pytest.mark.parametrize("name", TYPES)
def test_every_listed_record_is_frozen_versioned_and_told_by_its_type(name: str) -> None:
    (kind,) = [kind for kind in get_args(Record) if kind.type == name]
    assert kind.__struct_config__.frozen
    assert "v" in kind.__struct_fields__
    assert name in EVENT_TYPES


@pytest.mark.parametrize("name", LIVE)
def test_every_live_type_is_an_event_and_no_record(name: str) -> None:
    assert name in EVENT_TYPES
    assert name not in [kind.type for kind in get_args(Record)]


def test_every_type_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs/events.md").read_text()
    for name in EVENT_TYPES:
        assert f"`{name}`" in text


@pytest.mark.full
def test_the_types_that_nothing_writes_are_listed_as_reserved() -> None:
    root = Path(__file__).parents[2]
    reserved = (root / "docs/events.md").read_text().partition("### Reserved")[2].partition("## Live")[0]
    kinds = {kind.__name__ for kind in get_args(Record)}
    written = set[str]()
    for path in (root / "orchestrator").rglob("*.py"):
        if "testing" in path.parts or path.parent.name == "records":
            continue
        if not any(name in text_of(path) for name in kinds):
            continue
        for call in ast.walk(ast.parse(text_of(path))):
            made = call.func if isinstance(call, ast.Call) else None
            if isinstance(made, ast.Name | ast.Attribute):
                written.add(made.id if isinstance(made, ast.Name) else made.attr)
    unwritten = {kind.type for kind in get_args(Record) if kind.__name__ not in written}
    rows = [row.split("|")[1] for row in reserved.splitlines() if row.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == unwritten


@pytest.mark.anyio
async def test_a_record_of_a_step_says_activation_node_outcome_update_and_times() -> None:
    graph = Graph(
        name="g", state=State, nodes={"a": node(lambda: {"log": "x"})}, edges="START -> a -> END", output="log"
    )
    async with Executor() as ex:
        run = await ex.start(graph)
        records: list[Any] = list(await ex.store.read(run.run_id))
    assert [record.type for record in records] == ["run_started", "step_done", "ended"]
    step = records[1]
    assert (step.node, step.outcome, step.update) == ("a", "done", {"log": "x"})
    assert step.activation
    assert 0 < step.started <= step.ended
    for record in records:
        assert decode(encode(record)) == record
        with pytest.raises(AttributeError, match="immutable"):
            record.seq = 9
    with pytest.raises(ValueError, match="type"):
        decode(b'{"type": "unheard_of", "seq": 1, "ts": 0}')
    newer = encode(step)[:-1] + b',"v":99}'
    with pytest.raises(ValueError, match="newer"):
        decode(newer)
