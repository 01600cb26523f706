"""Rows that stores give out."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

from orchestrator.graph.limits import Usage
from orchestrator.stores.rows import RunInfo

STORED: Any = Usage(calls=3).model_dump_json(exclude_defaults=True)


def test_the_usage_of_a_row_is_read_when_it_is_asked_for() -> None:
    known, read = RunInfo("a", "g", "running", usage=Usage(calls=3)), RunInfo("a", "g", "running", usage=STORED)
    assert read.usage == known.usage
    assert read.usage is read.usage
    assert RunInfo("a", "g", "running", usage=STORED) == known
    assert hash(replace(read, labels=cast(Any, None))) == hash(replace(known, labels=cast(Any, None)))
    assert repr(RunInfo("a", "g", "running", usage=STORED)) == repr(known)
    for other in (RunInfo("a", "g", "running", usage=STORED).changed(head=2), copy.copy(read).changed(head=2)):
        assert (other.usage, other.head) == (Usage(calls=3), 2)
    assert read.summary.usage == Usage(calls=3)


def test_a_damaged_usage_is_none() -> None:
    assert RunInfo("a", "g", "running", usage=cast(Any, "{")).usage is None
    assert RunInfo("a", "g", "running").usage is None
