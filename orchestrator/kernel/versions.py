"""The versions that steps and merges of a graph make (R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.kernel.merge import merge
from orchestrator.kernel.state import Activation, FrameState
from orchestrator.kernel.version import Version


def step_version(
    activation: Activation,
    update: Mapping[str, object],
    ops: Mapping[str, str],
    reduced: Mapping[str, object] | None = None,
    *,
    alone: bool = False,
) -> Version:
    """The version that an update of an activation makes.

    Args:
        activation: the step.
        update: field -> value, as its record holds them.
        ops: field -> `replace` or `extend`.
        reduced: values that reducers made. They are kept, even if the reducers' code has changed since.
        alone: whether it will never be merged with another version; then its history is left out.
    """
    schema = activation.frame.plan.schema
    if reduced:
        rest = {name: value for name, value in update.items() if name not in reduced}
        values = {**schema.apply(activation.version.values, rest, ops), **schema.decode(reduced)}
    else:
        values = schema.apply(activation.version.values, update, ops)
    if alone:
        return Version(values, key=activation.key, taken=activation.taken)
    return Version(
        values, parents=(activation.version,), key=activation.key, node=activation.node, rank=activation.rank,
        update=update, ops=ops, taken=activation.taken,
    )  # fmt: skip


def passed_version(activation: Activation, *, alone: bool = False) -> Version:
    """The version behind an activation that updates nothing: its own, unless it took events."""
    version = activation.version
    if activation.taken == version.taken:
        return version
    if alone:
        return Version(version.values, key=activation.key, taken=activation.taken)
    return Version(
        version.values, parents=(version,), key=activation.key, node=activation.node, rank=activation.rank, update={},
        ops={}, taken=activation.taken,
    )  # fmt: skip


def merged(frame: FrameState, versions: Sequence[Version], key: str, fork: Version | None = None) -> Version:
    """The merge of versions; local fields get their values at `fork`, or where the branches parted.

    Raises:
        ConflictingUpdate: see `merge`.
        InvalidUpdate: see `merge`.
    """
    plan = frame.plan
    local: dict[str, object] | None = None
    if fork is not None:
        local = {name: fork.values[name] for name in plan.local if name in fork.values}
    return merge(plan.schema, versions, key=key, local=local, own=plan.local)
