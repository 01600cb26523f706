"""What a record costs to make and to read, counted in calls of Python functions: pydantic's own work calls none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, get_args

import pytest

from orchestrator.kernel import records as r
from orchestrator.kernel.question import Question, Value

REQUIRED: dict[str, Any] = {
    "seq": 1, "ts": 1.5, "activation": "a", "node": "n", "run_id": "run", "graph": "g", "structure": "s",
    "content": "c", "values": {"x": 1}, "key": "k", "kind": "tool", "name": "n", "effect": "read", "digest": "d",
    "question": "q", "answer": Value(value=1), "attempt": 1, "at": 2, "next_at": 2.5, "limit": "steps", "frame": "",
    "error": r.Failure(type="ValueError", message="no"), "run": "inner", "limits": {}, "parent": "p",
    "status": "failed",
}  # fmt: skip
"""A value for each field that some record has to be given."""
OTHERWISE: dict[str, dict[str, Any]] = {"asked": {"question": Question(id="q", kind="input", node="n")}}


def given(kind: Any) -> dict[str, Any]:
    """What a record of this class has to be given."""
    name = kind.model_fields["type"].default
    required = [field for field, info in kind.model_fields.items() if info.is_required()]
    return {field: REQUIRED[field] for field in required} | OTHERWISE.get(name, {})


def calls(work: Callable[[], object]) -> list[str]:
    """The Python functions that this calls."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found[1:]  # without `work`


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_reading_a_record_calls_one_function(kind: Any) -> None:
    data = r.encode(kind(**given(kind)))
    assert calls(lambda: r.decode(data)) == ["decode"]


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_making_a_record_calls_one_function(kind: Any) -> None:
    fields = given(kind)
    assert [name for name in calls(lambda: kind(**fields)) if name != "__instancecheck__"] == ["__init__"]


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_no_two_records_share_what_can_be_changed(kind: Any) -> None:
    """Defaults are made for each record and not copied, which took half of the time of reading a step."""
    data = r.encode(kind(**given(kind)))
    first, second, third = r.decode(data), r.decode(data), kind(**given(kind))
    for name, value in vars(first).items():
        if isinstance(value, dict | list):
            assert value is not getattr(second, name)
            assert value is not getattr(third, name)
            assert value == getattr(second, name)
