"""Items of maps that wait for the items they need (R12)."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import StepError
from orchestrator.kernel import tokens
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.records import Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import FrameState, MapItem
from orchestrator.kernel.version import Version
from orchestrator.kernel.versions import merged


def settle_item(run: RunState, frame: FrameState, item: MapItem) -> None:
    """If the item is done, note it and start the items that needed only this one still."""
    if item.done or item.open or not item.started:
        return
    item.done = True
    item.versions = [token.version for token in tokens.in_order(frame, item.waiting.values())] + item.late
    ordered_map = item.ordered_map
    for index in ordered_map.dependents.get(item.index, ()):
        dependent = ordered_map.items[index]
        dependent.missing -= 1
        if not dependent.missing:
            start_item(run, frame, dependent)


def start_item(run: RunState, frame: FrameState, item: MapItem) -> None:
    """Start an item, or skip it because an item that it needs ended."""
    for observer in run.observers:
        observer.item_ready(item)
    ordered_map = item.ordered_map
    token = ordered_map.pending.pop(item.index, None)
    if token is None:
        return
    needed = [ordered_map.items[index] for index in item.needs]
    item.started = True
    tokens.remove(token)
    if ordered_map.target is not None and any(not other.versions for other in needed):
        frame.touched_items[id(item)] = item
        return
    if needed:
        try:
            token.version = _needed_version(frame, item, needed)
        except StepError as error:
            token.fault = Failure(type=type(error).__name__, message=str(error), node=token.node)
    if token.fault is not None:
        tokens.enqueue(run, token)
    else:
        tokens.place(run, token)


def _needed_version(frame: FrameState, item: MapItem, needed: Sequence[MapItem]) -> Version:
    ordered_map = item.ordered_map
    known = ordered_map.merged.get(item.needs)
    if known is None:
        # Without the fork's own version: all these come from it, and R15 may have dropped it from their history.
        versions = [version for other in needed for version in other.versions or other.ended]
        versions = versions or [item.fork.version]
        key = hash_id(item.fork.key, *(str(index) for index in item.needs))
        known = ordered_map.merged[item.needs] = merged(frame, versions, key, item.fork.version)
    return known
