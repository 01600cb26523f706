"""What a record costs to make and to read, counted in calls of Python functions: the compiled parts call none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, get_args

import pytest
from msgspec import structs

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r
from orchestrator.kernel.question import Question, Value

REQUIRED: dict[str, Any] = {
    "seq": 1, "ts": 1.5, "activation": "a", "node": "n", "run_id": "run", "graph": "g", "structure": "s",
    "content": "c", "values": {"x": 1}, "key": "k", "kind": "tool", "name": "n", "effect": "read", "digest": "d",
    "question": "q", "answer": Value(value=1), "attempt": 1, "at": 2, "next_at": 2.5, "limit": "steps", "frame": "",
    "error": r.Failure(type="ValueError", message="no"), "run": "inner", "limits": Limits(), "parent": "p", "rules": 2,
    "status": "failed",
}  # fmt: skip
"""A value for each field that some record has to be given."""
OTHERWISE: dict[str, dict[str, Any]] = {"asked": {"question": Question(id="q", kind="input", node="n")}}


def given(kind: Any) -> dict[str, Any]:
    """What a record of this class has to be given."""
    required = [one.name for one in structs.fields(kind) if one.required]
    return {field: REQUIRED[field] for field in required} | OTHERWISE.get(kind.type, {})


def profiled(work: Callable[[], object], note: Callable[[FrameType, str, Any], None]) -> None:
    """Do it with a function that notes its calls, in place of the one that was there."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)


def calls(work: Callable[[], object]) -> list[str]:
    """The Python functions that this calls."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    profiled(work, note)
    return found[1:]  # without `work`


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_reading_a_record_calls_three_functions_and_one_for_each_model_in_it(kind: Any) -> None:
    data = r.encode(kind(**given(kind)))
    r.decode(data)  # the first one of a process imports what it needs
    inside = {"_model", "answer_of", "model_validate"}
    assert [name for name in calls(lambda: r.decode(data)) if name not in inside] == ["decode", "_parsed", "_record"]


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_making_a_record_calls_no_function(kind: Any) -> None:
    fields = given(kind)
    assert calls(lambda: kind(**fields)) == []


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_no_two_records_share_what_can_be_changed(kind: Any) -> None:
    """Defaults are made for each record and not copied, which took half of the time of reading a step."""
    data = r.encode(kind(**given(kind)))
    first, second, third = r.decode(data), r.decode(data), kind(**given(kind))
    for name, value in structs.asdict(first).items():
        if isinstance(value, dict | list):
            assert value is not getattr(second, name)
            assert value is not getattr(third, name)
            assert value == getattr(second, name)
