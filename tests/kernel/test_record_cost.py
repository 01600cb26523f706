"""What a record costs to make and to read, counted in calls of Python functions: pydantic's own work calls none."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, get_args

import pytest
from hypothesis import given as over
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.kernel import records as r
from orchestrator.kernel.question import Question, Value

REQUIRED: dict[str, Any] = {
    "seq": 1, "ts": 1.5, "activation": "a", "node": "n", "run_id": "run", "graph": "g", "structure": "s",
    "content": "c", "values": {"x": 1}, "key": "k", "kind": "tool", "name": "n", "effect": "read", "digest": "d",
    "question": "q", "answer": Value(value=1), "attempt": 1, "at": 2, "next_at": 2.5, "limit": "steps", "frame": "",
    "error": r.Failure(type="ValueError", message="no"), "run": "inner", "limits": {}, "parent": "p", "rules": 2,
    "status": "failed",
}  # fmt: skip
"""A value for each field that some record has to be given."""
OTHERWISE: dict[str, dict[str, Any]] = {"asked": {"question": Question(id="q", kind="input", node="n")}}


def given(kind: Any) -> dict[str, Any]:
    """What a record of this class has to be given."""
    name = kind.model_fields["type"].default
    required = [field for field, info in kind.model_fields.items() if info.is_required()]
    return {field: REQUIRED[field] for field in required} | OTHERWISE.get(name, {})


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


def compiled_calls(work: Callable[[], object]) -> list[str]:
    """The functions of pydantic's compiled part that this calls."""
    found: list[str] = []

    def note(_frame: FrameType, event: str, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None) or type(owner).__module__
        if event == "c_call" and module.startswith("pydantic_core"):
            found.append(function.__name__)

    profiled(work, note)
    return found


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_reading_a_record_calls_one_function(kind: Any) -> None:
    data = r.encode(kind(**given(kind)))
    r.decode(data)  # the first one of a process imports what it needs
    assert calls(lambda: r.decode(data)) == ["decode"]


@pytest.mark.parametrize("kind", get_args(r.Record), ids=lambda kind: kind.__name__)
def test_a_record_that_is_read_is_parsed_once_and_validated_once(kind: Any) -> None:
    data = r.encode(kind(**given(kind)))
    r.decode(data)
    assert compiled_calls(lambda: r.decode(data)) == ["from_json", "validate_python"]


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


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENTS = st.floats(0, 1e10, allow_nan=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, PLAIN, max_size=3)
STAMPS: st.SearchStrategy[r.StepStamp] = st.fixed_dictionaries(
    {"seq": st.integers(1), "ts": MOMENTS, "activation": TEXTS, "path": TEXTS, "node": TEXTS}
)  # type: ignore[assignment]
PARTS = st.fixed_dictionaries(
    {
        "outcome": TEXTS, "update": OBJECTS, "ops": st.dictionaries(TEXTS, TEXTS, max_size=2),
        "reduced": st.none() | OBJECTS, "attempt": st.integers(1), "started": MOMENTS,
    },
    optional={
        "error": st.none() | st.builds(r.Failure, type=TEXTS, message=TEXTS), "failed": st.integers(0),
        "guards": st.none() | st.dictionaries(TEXTS, st.booleans() | TEXTS, max_size=2), "cached": st.booleans(),
    },
)  # fmt: skip


@over(STAMPS, PARTS)
def test_a_step_that_is_made_without_validation_is_the_validated_one(stamp: r.StepStamp, parts: dict[str, Any]) -> None:
    made = r.step_done(stamp, **parts)
    given = {**stamp, **parts, "ended": stamp["ts"], "guards": parts.get("guards") or {}}
    whole = r.StepDone(**given)
    whole = r.StepDone(**dict(whole))  # with every field set
    assert made == whole
    assert r.decode(r.encode(made)) == made
    assert r.encode(made) == r.encode(whole)
    assert list(vars(made)) == list(vars(whole))
    assert [type(value) for value in vars(made).values()] == [type(value) for value in vars(whole).values()]
    assert made.model_fields_set == whole.model_fields_set
    assert (made.model_dump_json(), repr(made)) == (whole.model_dump_json(), repr(whole))
    assert pickle.loads(pickle.dumps(made)) == whole == made.model_copy()
    with pytest.raises(ValidationError, match="frozen"):
        made.seq = 9


def test_making_the_record_of_a_step_calls_one_function() -> None:
    stamp: r.StepStamp = {"seq": 1, "ts": 1.5, "activation": "a", "path": "", "node": "n"}
    parts: dict[str, Any] = {"outcome": "done", "update": {}, "ops": {}, "reduced": None, "attempt": 1, "started": 1.0}
    assert calls(lambda: r.step_done(stamp, **parts)) == ["step_done"]
