"""Items that name the items they need (R12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose values carry neither."""


def _get(item: object, name: str) -> object:
    if isinstance(item, Mapping):
        return item.get(name)
    return getattr(item, name, None)


def _has(item: object, name: str) -> bool:
    return name in item if type(item) is dict or isinstance(item, Mapping) else hasattr(item, name)


def has_needs(items: Sequence[object]) -> bool:
    """Whether the items carry `id` and `needs`."""
    if _PLAIN.issuperset(map(type, items)):
        return False
    return any(_has(item, "needs") and _has(item, "id") for item in items)


def needed_indexes(items: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """For each item the sorted indexes of those it needs. `needs_error` must have found no error in the items."""
    index = {_get(item, "id"): i for i, item in enumerate(items)}
    return tuple(tuple(sorted({index[need] for need in _needs(item) if need in index})) for item in items)


def _needs(item: object) -> Sequence[object]:
    found = _get(item, "needs")
    if found is None:
        return ()
    return tuple(found) if isinstance(found, (list, tuple, set, frozenset)) else (found,)


def needs_error(items: Sequence[object]) -> str | None:
    """The error in the items' ids and needs, if any: an unknown id, a duplicate id, a circle."""
    ids: dict[object, int] = {}
    for i, item in enumerate(items):
        name = _get(item, "id")
        try:
            if name in ids:
                return f"items {ids[name]} and {i} have the same id {name!r}"
            ids[name] = i
        except TypeError:
            return f"item {i} has an invalid id: {name!r}"
    for item in items:
        for need in _needs(item):
            try:
                known = need in ids
            except TypeError:
                known = False
            if not known:
                return f"item {_get(item, 'id')!r} needs {need!r}, and no item has that id"
    needs = needed_indexes(items)
    missing = [len(wanted) for wanted in needs]
    users: dict[int, list[int]] = {}
    for i, wanted in enumerate(needs):
        for need in wanted:
            users.setdefault(need, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    done = 0
    while ready:
        done += 1
        for user in users.get(ready.pop(), ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if done == len(items):
        return None
    circle = [_get(items[i], "id") for i, count in enumerate(missing) if count]
    return f"items {', '.join(repr(name) for name in circle)} depend on each other in a circle"
