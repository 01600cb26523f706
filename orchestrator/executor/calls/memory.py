"""Memory across runs for nodes: every access is an effect. Also makes the accesses to the store.

Results of reads are journaled, so that a resumed run, a replay and a fork see the same results. A write is made once:
the store identifies it by the key of its effect, even if the process dies before its end is journaled.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio

from orchestrator.errors import EncryptionKeyMissing, InvalidValue, MemoryFull, StoreUnavailable
from orchestrator.executor.calls.effect import Effect
from orchestrator.executor.calls.perform import AttemptEffects
from orchestrator.executor.failures import Lost
from orchestrator.graph.codec import shown
from orchestrator.graph.isolation import isolated
from orchestrator.graph.signatures import is_async
from orchestrator.json import canonical
from orchestrator.memory import FULL, Access, Memory, MemoryOptions, searched_text
from orchestrator.stores.base import Store
from orchestrator.stores.codec import encoded_in, key_of
from orchestrator.stores.items import FoundItem, Item, ItemWrite, namespace_text, packed
from orchestrator.tasks import away
from orchestrator.user_code import call_in_thread, pass_fence, waits_at_fence


class JournaledMemory(Memory):
    """The memory of one step."""

    __slots__ = ("_effects", "_made")

    def __init__(self, effects: AttemptEffects) -> None:
        resources = effects.attempt.resources
        self._effects = effects
        self._made = MemoryAccess(effects.attempt.log.journal.store, resources.memory, resources.threads)

    @property
    def _options(self) -> MemoryOptions:
        return self._made.options

    async def _access(self, access: Access) -> Any:
        attempt = self._effects.attempt

        async def run(key: str) -> object:
            waits_at_fence(key)
            await pass_fence()
            try:
                return await self._made.make(access, ItemWrite(attempt.log.run_id, key) if access.writes else None)
            except StoreUnavailable as error:  # the journal's store, too: the run continues when it works again
                raise attempt.signalled(Lost(error)) from error

        found = await self._effects.perform(
            Effect[object](
                kind="effect",
                name=f"memory.{access.name}",
                effect="idempotent" if access.writes else "read",
                request=access.request,
                run=run,
                encode=lambda value: value,
                decode=lambda value: value,
            )
        )
        return isolated(found)  # the journal stores the result


# -- accesses to the store ---------------------------------------------------------------------------------------------


_MOST_NUMBERS = 100_000
"""Maximum number of components of one vector."""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Makes accesses to the memory of a store."""

    store: Store
    options: MemoryOptions
    threads: anyio.CapacityLimiter | None = None
    """Limiter for an embedding function that is sync."""

    async def make(self, access: Access, write: ItemWrite | None = None) -> Any:
        """Make an access, and return its result as plain JSON.

        Args:
            access: the access.
            write: the call of a run that makes the access.

        Raises:
            StoreError: the store failed, the item is damaged, or its key is missing.
            InvalidValue: the embedding function did not return vectors.
        """
        request = cast("dict[str, Any]", access.request)
        match access.name:
            case "get":
                item = await self.store.item("memory", tuple(request["namespace"]), request["key"])
                return None if item is None else await away(lambda: _data(item), item.data)
            case "put":
                return await self._put(request, write)
            case "delete":
                return await self.store.delete_item("memory", tuple(request["namespace"]), request["key"], write=write)
            case "search":
                hits = await self._search(request)
                parts = (one.item.data for one in hits)
                return await away(lambda: [{**_data(one.item), "score": one.score} for one in hits], *parts, "")
            case "list":
                names, key = request.get("after") or ((), "")
                after = (namespace_text(names), key) if names else None
                items = await self.store.items("memory", tuple(request["prefix"]), after=after, limit=request["limit"])
                return await away(lambda: [_data(one) for one in items], *(one.data for one in items), "")
            case _:
                found = await self.store.item_namespaces("memory", tuple(request["prefix"]))
                return [[*names] for names in found]

    async def _put(self, request: Mapping[str, Any], write: ItemWrite | None) -> object:
        namespace, key, value = tuple(request["namespace"]), request["key"], request["value"]
        text = request.get("text")
        text = searched_text(value) if text is None else text
        vector = b"" if self.options.embed is None else await self._embedded(text or key)
        lifetime = request.get("expires", self.options.expires)
        item = Item(namespace, key, canonical(value), f"{key}\n{text}", vector)
        try:
            await self.store.put_item("memory", item, lifetime=lifetime, write=write, most=self.options.max_bytes)
        except MemoryFull as error:
            return {FULL: str(error)}
        return None

    async def _search(self, request: Mapping[str, Any]) -> list[FoundItem]:
        by = request.get("by") or ("words" if self.options.embed is None else "meaning")
        prefix, text, limit = tuple(request["prefix"]), request["text"], request["limit"]
        if by == "words":
            return await self.store.search_items("memory", prefix, text, limit=limit)
        return await self.store.nearest_items("memory", prefix, await self._embedded(text), limit=limit)

    async def _embedded(self, text: str) -> bytes:
        embed = self.options.embed
        assert embed is not None
        if is_async(embed):
            found: object = embed([text])
        else:
            (found,) = await anyio.to_thread.run_sync(lambda: (call_in_thread(embed, [text]),), limiter=self.threads)
        vectors = await found if inspect.isawaitable(found) else found
        if isinstance(vectors, str | Mapping) or not hasattr(vectors, "__len__") or len(cast("Any", vectors)) != 1:
            raise InvalidValue(
                f"the embedding function returned {shown(vectors)}: return a list of one vector for each text"
            )
        vector = [*cast("Sequence[Sequence[float]]", vectors)[0]]
        if not 0 < len(vector) <= _MOST_NUMBERS:
            raise InvalidValue(f"the embedding function returned a vector of {len(vector)} numbers")
        return packed(vector)


def value_of(item: Item) -> Any:
    """Return the value of an item.

    Raises:
        EncryptionKeyMissing: it is encrypted, and the store was opened without a codec.
    """
    value = json.loads(item.data)
    text = encoded_in(value) if isinstance(value, dict) and len(value) == 1 else None
    if text is not None:
        raise EncryptionKeyMissing(f"item {item.key!r} in {'/'.join(item.namespace)}", key_of(text))
    return value


def _data(item: Item) -> dict[str, object]:
    return {
        "namespace": [*item.namespace],
        "key": item.key,
        "value": value_of(item),
        "created": item.created,
        "updated": item.updated,
        "expires": item.expires,
    }
