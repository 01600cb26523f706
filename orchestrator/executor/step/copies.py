"""Copies of values of the state, so that a node that changes what it was given changes nothing else."""

from __future__ import annotations

import copy

from pydantic import BaseModel

_SHARED = (str, int, float, bool, type(None), bytes)


def own_copy(value: object) -> object:
    """A copy of a value of the state; the value itself if it cannot be changed."""
    if isinstance(value, _SHARED) or (isinstance(value, BaseModel) and value.model_config.get("frozen")):
        return value
    return copy.deepcopy(value)
