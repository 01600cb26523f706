"""The deletion of one run: of what it left outside its journal, too, with a proof that stays in the store.

A proof has no content of the run. It is written before the run is deleted, so no deletion is without one, under a key
made of the run's id and start; the proof of a deletion that was interrupted is replaced when the run is deleted again.
After the deletion it gets its own digest as its key, so it stays if the run is imported and deleted once more.

The proof of a fork is in a namespace of its parent, so that the forks of deleted forks are found.

Every program that can write to the store can write items and records: what has another form than expected is left out.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nlargest
from typing import Any, TypeAlias

from orchestrator.errors import StoreCorrupt, StoreUnavailable
from orchestrator.executor.host import Host
from orchestrator.json import canonical, digest, digest_of_text, storable
from orchestrator.kernel.records import EffectIntended, Forked, Record
from orchestrator.kernel.seals import Seal
from orchestrator.redaction import redact
from orchestrator.stores.base import RunInfo
from orchestrator.stores.items import Item, Namespace
from orchestrator.stores.requests import RunQuery
from orchestrator.tasks import away
from orchestrator.values import check_name

logger = logging.getLogger("orchestrator.audit")

DELETIONS, EXPORTS = "deletions", "exports"
"""First names of the namespaces of the area `audit`."""
AT_ONCE = 100
"""Maximum number of records or items that are read at once."""
_MOST_NAMED = 500
"""Maximum number of forks and replays that a proof names, and of exports; the others are counted."""
_LONGEST_NAME = 4096
"""Characters of an export's name, and of a person's, that are read."""
_LATEST = 1e12
"""Unix seconds that no time of an export reaches."""

Erase: TypeAlias = Callable[[Collection[str]], int]
"""Deletes what calls of tools wrote elsewhere, by their idempotency keys; returns the number of deleted things."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Who deletes runs, why, and what is deleted with them."""

    by: str = ""
    rule: str = ""
    memory: bool = False
    """Whether to delete the items of memory that still have the value that the run wrote."""
    also: Sequence[Erase] = ()
    """Functions that delete what calls of tools wrote elsewhere."""


@dataclass(slots=True)
class Traces:
    """What a proof says of a journal, and what its calls wrote elsewhere."""

    info: RunInfo
    """The run's row; an empty one if it is damaged."""
    chain: str
    head: int = 0
    """Number of the last record that can be read."""
    seal: str = ""
    calls: set[str] = field(default_factory=set[str])
    """Keys of calls of tools."""
    results: dict[str, str] = field(default_factory=dict[str, str])
    """Key of a cached result -> its node."""
    items: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    """Namespace and key of an item of memory -> the digest of the last value that the run wrote."""


def seal_of(host: Host) -> Seal:
    """Return the executor's seal; one without a key if it has none."""
    return host.seal or Seal(None, host.store.url)


async def delete_run(host: Host, found: Traces, order: Deletion) -> None:
    """Delete a run whose lease is held."""
    store, seal, info = host.store, seal_of(host), found.info
    run_id, place = info.run_id, _place(info)
    removed = {
        "results": await _remove_results(host, found),
        "memory": await _remove_items(host, found) if order.memory else 0,
        "also": sum([await away(partial(erase, found.calls)) for erase in order.also]),
    }
    related = [name async for name in copies_of(host, run_id)]
    proof: dict[str, object] = {
        "run_id": run_id, "graph": info.content, "created": info.created, "at": host.resources.clock.now(),
        "by": _told(order.by), "rule": _told(order.rule), "head": found.head, "chain": found.chain,
        "last_seal": found.seal, "related": related[:_MOST_NAMED],
        "more_related": max(0, len(related) - _MOST_NAMED), **await exports(host, info), "removed": removed,
    }  # fmt: skip
    proof["seal"] = seal.message(run_id, proof)
    await store.put_item("audit", Item(place, begun_key(run_id, info.created), canonical(proof)))
    await store.delete(run_id)
    await keep_proof(host, info)
    if await store.item_namespaces("audit", _exports_of(run_id)):
        await store.prune_items("audit", _exports_of(run_id), older_than=0)  # also those that cannot be read


async def copies_of(host: Host, run_id: str) -> AsyncIterator[str]:
    """Yield the ids of the runs that began as copies of a run, or of such a copy that was deleted."""
    todo, seen = {run_id: math.inf}, {run_id}
    while todo:
        name, deleted = todo.popitem()  # runs that began later are copies of another run with that id
        query = RunQuery(parent=name, limit=200)
        while True:
            page = await host.store.runs(query)
            for info in page.runs:
                if info.run_id not in seen and _original(info) == name and info.created <= deleted:
                    seen.add(info.run_id)
                    yield info.run_id
            if page.cursor is None:
                break
            query = replace(query, after=page.cursor)
        gone = dict[str, float]()
        async for items in _pages(host, (DELETIONS, digest(name))):
            for proof in map(_object, items):
                match proof:
                    case {"run_id": str(one), "created": float() | int() as created, "at": float() | int() as at}:
                        if created <= deleted and one.isprintable() and one not in seen:
                            gone[one] = max(gone.get(one, at), at)
        seen |= gone.keys()
        todo |= gone


def _original(info: RunInfo) -> str:
    """Return the id of the run of which a run is a fork or a replay; empty if there is none."""
    parent = info.parent
    if parent is None or (parent.relation == "call" and info.labels.get("parent") == parent.run_id):
        return ""  # a graph tool started it: then its label names the caller, and that is its parent
    return parent.run_id


def _place(info: RunInfo) -> Namespace:
    """Return the namespace of the proof of a run's deletion."""
    original = _original(info)
    return (DELETIONS, digest(original)) if original else (DELETIONS,)


def begun_key(run_id: str, created: float) -> str:
    """Return the key of the proof of a deletion that may have been interrupted."""
    return digest([run_id, created])


async def keep_proof(host: Host, info: RunInfo) -> None:
    """Give the proof of a run that is not in the store a key of its own, so that no other deletion replaces it."""
    begun = await host.store.item("audit", _place(info), begun_key(info.run_id, info.created))
    if begun is not None:
        await host.store.put_item("audit", Item(begun.namespace, digest_of_text(begun.data), begun.data))
        await host.store.delete_item("audit", begun.namespace, begun.key)


async def note_export(host: Host, run_id: str, to: str, by: str) -> None:
    """Record the name under which a run was exported, if the store can be written."""
    data = {"to": _told(to), "by": _told(by), "at": host.resources.clock.now()}
    try:
        await host.store.put_item("audit", Item(_exports_of(run_id), digest([data["to"], data["by"]]), canonical(data)))
    except StoreUnavailable as error:
        logger.warning("run %s: its export is not recorded: %s", run_id, error)


async def exports(host: Host, info: RunInfo) -> dict[str, Any]:
    """Return the last `exports` of a run: name, person, and time; and `more_exports`, the number of the other ones."""
    count, named = 0, list[dict[str, Any]]()
    async for page in _pages(host, _exports_of(info.run_id)):
        for note in map(_object, page):
            match note:
                case {"to": str(to), "by": str(by), "at": float() | int() as at} if 0 <= at < _LATEST:
                    if at < info.created:
                        continue  # of an earlier run with this id
                    named.append({"to": _told(to[:_LONGEST_NAME]), "by": _told(by[:_LONGEST_NAME]), "at": at})
            count += 1
        named = nlargest(_MOST_NAMED, named, key=lambda one: float(one["at"]))
    return {"exports": named[::-1], "more_exports": count - len(named)}


def _told(text: str) -> str:
    """Return a text of a person or program in the form in which a proof has it."""
    return redact(storable(text))


async def _pages(host: Host, prefix: Namespace) -> AsyncIterator[list[Item]]:
    """Yield the items of the area `audit` in these namespaces, some at a time."""
    after: tuple[str, str] | None = None
    while page := await host.store.items("audit", prefix, after=after, limit=AT_ONCE):
        yield page
        after = page[-1].place


def _object(item: Item) -> dict[str, Any]:
    """Return the value of an item; an empty one if it is no JSON object."""
    with suppress(ValueError, RecursionError):
        value = json.loads(item.data)
        if isinstance(value, dict):
            return value
    return {}


def _exports_of(run_id: str) -> tuple[str, str]:
    return EXPORTS, digest(run_id)


async def traces_of(host: Host, run_id: str) -> Traces:
    """Read the journal of a run that is to be deleted.

    Raises:
        RunUnknown: the store has no such run.
        StoreTooNew: a newer version of this library wrote one of its records: only that one knows what to delete.
    """
    try:
        info = await host.store.info(run_id)
    except StoreCorrupt:  # a damaged row is deleted, too
        info = RunInfo(run_id, "", "failed", created=0.0, head=0)
    chain = seal_of(host).chain(run_id)
    found, upto = Traces(info, chain.digest), info.head or None  # None: its row is damaged
    while upto is None or found.head < upto:
        try:
            records: Sequence[Record] = await host.store.read(run_id, after=found.head, upto=upto, limit=AT_ONCE)
        except StoreCorrupt as error:  # a damaged run is deleted, too
            records = [one for one in vars(error).get("records", ()) if one.seq > found.head]
        for record in records:
            found.seal = record.seal
            chain.holds(record)
            if isinstance(record, Forked):  # the records before it are copies of another run's
                found.calls, found.results, found.items = set(), {}, {}
            elif isinstance(record, EffectIntended) and record.taken is None:
                _trace(record, found)
        found.head += len(records)
        if len(records) < AT_ONCE:
            break
    found.chain = chain.digest
    return found


def _trace(record: EffectIntended, found: Traces) -> None:
    if record.kind == "tool":
        found.calls.add(record.key)
        return
    with suppress(ValueError):  # no call could have written such an item
        match record.name, record.request:
            case "cache.put", {"key": key}:
                found.results[check_name(key)] = record.node
            case "memory.put", {"namespace": [*names], "key": key, "value": value}:
                found.items[tuple(map(check_name, (*names, key)))] = digest(value)


async def _remove_results(host: Host, found: Traces) -> int:
    """Remove the results of cached nodes that a run put there; other runs that need them make them again."""
    places = await host.store.item_namespaces("cache") if found.results else []
    return sum([
        await host.store.delete_item("cache", place, key)
        for key, node in found.results.items() for place in places if place[-1] == node
    ])  # fmt: skip


async def _remove_items(host: Host, found: Traces) -> int:
    count = 0
    for (*namespace, key), value in found.items.items():
        item = await host.store.item("memory", tuple(namespace), key)
        if item is not None and digest_of_text(item.data) == value:
            count += await host.store.delete_item("memory", item.namespace, key)
    return count
