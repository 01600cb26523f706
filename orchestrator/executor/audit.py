"""Export of what was asked, approved, called and deleted in a store, as lines of JSON that prove that they are whole.

{"n": 1, "type": "audit", "version": 1, "place": "/srv/runs.db", ...}
{"n": 2, "type": "run", "run_id": "...", "head": 12, "start": "...", "earlier": [], ...}
{"n": 3, "type": "run_started", "seq": 1, ..., "chain": "...", "seal": "..."}    each record of the run
{"n": 15, "type": "deleted", "proof": {...}}                                      each run that was deleted
{"n": 16, "type": "end", "runs": 1}

Each line ends with `sum`, the SHA-256 of all lines up to it, and `mac`, the code of that sum under the key of seals.
`chain` is the digest of the records of the run up to this one, which their `seal` signs. `audit_check.py` checks both.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from orchestrator.errors import RunUnknown, StoreCorrupt, StoreError, StoreUnavailable
from orchestrator.executor.audit_check import code
from orchestrator.executor.deletion import AT_ONCE, DELETIONS, begun_key, exports, seal_of
from orchestrator.executor.host import Host
from orchestrator.json import JsonObject, digest, json_text
from orchestrator.kernel.records import Record, as_json, encode_unsealed
from orchestrator.kernel.seals import Chain
from orchestrator.redaction import redact, redacted
from orchestrator.stores.base import RunInfo
from orchestrator.stores.places import shown_url
from orchestrator.stores.requests import RunQuery
from orchestrator.tasks import away
from orchestrator.values import check

VERSION = 1

logger = logging.getLogger("orchestrator.audit")

_FACTS = {
    "run_started": "graph structure content approve caller by",
    "forked": "parent at relation root question key withdrawn once by",
    "migrated": "structure content structure_before content_before grade withdrawn",
    "asked": "node path",
    "answered": "question policy about by",
    "answers_withdrawn": "questions policy",
    "event_received": "name questions by",
    "effect_intended": "key kind name effect digest again node path",
    "effect_settled": "key ok unknown answered",
    "resumed": "content approve unpause by",
    "paused": "by",
    "cancelled": "by",
    "limits_changed": "limits by",
    "reopened": "status by",
    "ended": "status",
}
"""Type of a record -> its fields that an audit has: none with content of the run."""
_DIGESTS = {
    "run_started": "values",
    "forked": "update result",
    "answered": "answer",
    "event_received": "data",
    "effect_settled": "result error",
    "ended": "output error",
}
"""Type of a record -> its fields of which an audit has the digest."""


_PROOF: dict[str, type | tuple[type, ...]] = {
    "run_id": str, "created": (int, float), "at": (int, float), "head": int, "chain": str, "seal": str,
}  # fmt: skip
"""Fields of a proof that are read -> their types. Every program that can write to the store can write them."""


class _Lines:
    """Ends each line with the digest of all lines up to it, and with its code."""

    def __init__(self, key: bytes | None) -> None:
        self._key, self._sum, self._count = key, b"", 0

    def line(self, fields: JsonObject) -> str:
        self._count += 1
        body = json_text({"n": self._count, **fields})[:-1]
        self._sum = hashlib.sha256(self._sum + body.encode()).digest()
        mac = code(self._key, b"audit " + self._sum) if self._key else ""
        return f'{body},"sum":"{self._sum.hex()}","mac":"{mac}"}}'


async def audited(host: Host, query: RunQuery, run_ids: Collection[str] | None, *, content: bool) -> AsyncIterator[str]:
    """See `Executor.audit`."""
    seal, runs, deleted = seal_of(host), 0, 0
    lines = _Lines(seal.key)
    wanted = None if run_ids is None else frozenset(run_ids)
    earlier = await _earlier(host, wanted)
    for name in sorted((wanted or frozenset()) - earlier.keys()):  # unknown runs are reported before the first line
        with suppress(StoreCorrupt):
            await host.store.info(name)
    yield lines.line({
        "type": "audit", "version": VERSION, "store": shown_url(host.store.url), "place": seal.place,
        "at": host.resources.clock.now(), "seals": "HMAC-SHA-256" if seal.key else "", "content": content,
        "runs": None if wanted is None else sorted(wanted), "since": query.since, "graph": query.graph,
        "labels": dict(query.labels),
    })  # fmt: skip
    async for run_id in _runs(host, query, wanted):
        async for fields in _run(host, run_id, sorted(earlier.get(run_id, ())), content=content):
            runs += fields["type"] == "run"
            yield lines.line(fields)
    async for proof in deletions(host):
        if (wanted is None or proof["run_id"] in wanted) and (query.since is None or proof["at"] >= query.since):
            deleted += 1
            yield lines.line({"type": "deleted", "proof": proof})
    yield lines.line({"type": "end", "runs": runs, "deleted": deleted})


async def _earlier(host: Host, wanted: Collection[str] | None) -> dict[str, list[str]]:
    """Return the digests of proofs by the runs that were deleted: of all that are wanted, or that are there again."""
    found, most = dict[str, list[str]](), 1000
    async for proof in deletions(host, warn=True):
        if wanted is None or proof["run_id"] in wanted:
            found.setdefault(proof["run_id"], []).append(digest(proof))
        if wanted is None and len(found) >= most:  # few runs are there again: a store may have millions of proofs
            found = {run_id: found[run_id] for run_id in await host.store.heads(found)}
            most = 2 * len(found) + 1000
    return found


async def _runs(host: Host, query: RunQuery, wanted: Collection[str] | None) -> AsyncIterator[str]:
    for run_id in sorted(wanted or ()):
        yield run_id
    while wanted is None:
        page = await host.store.runs(query)
        for info in page.runs:
            yield info.run_id
        if page.cursor is None:
            return
        query = replace(query, after=page.cursor)


async def deletions(host: Host, *, warn: bool = False) -> AsyncIterator[dict[str, Any]]:
    """Yield the proofs of the runs that were deleted from a store. `warn`: whether to log what is no proof."""
    async for key, proof in _proofs(host, warn=warn):
        if key != begun_key(proof["run_id"], proof["created"]) or not await _is_there(host, proof):
            yield proof  # else the deletion was interrupted


async def _is_there(host: Host, proof: Mapping[str, Any]) -> bool:
    try:
        return (await host.store.info(proof["run_id"])).created == cast("float", proof["created"])
    except (RunUnknown, StoreCorrupt) as error:
        return isinstance(error, StoreCorrupt)


async def _proofs(host: Host, *, warn: bool = False) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield all proofs in a store with their keys, also of interrupted deletions. What is no proof is left out."""
    after: tuple[str, str] | None = None
    while page := await host.store.items("audit", (DELETIONS,), after=after, limit=AT_ONCE):
        for item in page:
            proof = _proof(item.data)
            if proof is not None:
                yield item.key, proof
            elif warn:
                logger.warning("an item of the store is no proof of a deletion and is left out: %.40s", item.key)
        after = page[-1].place


def _proof(text: str) -> dict[str, Any] | None:
    """Return the proof in an item; None if it is none, or has what cannot be read back, such as infinity."""
    try:
        proof = json.loads(text)
        if not isinstance(proof, dict) or not all(isinstance(proof.get(name), kind) for name, kind in _PROOF.items()):
            return None
        check(proof)
    except (ValueError, RecursionError):
        return None
    return proof


async def _run(host: Host, run_id: str, earlier: list[str], *, content: bool) -> AsyncIterator[JsonObject]:
    """Yield the lines of a run. A last line says why its records are not all there, if they are not.

    Args:
        host: the executor with the store.
        run_id: the run; if it was deleted meanwhile, it has no lines.
        earlier: digests of the proofs that earlier runs with this id were deleted.
        content: whether to include the records.
    """
    chain = seal_of(host).chain(run_id)
    known: JsonObject = {"type": "run", "run_id": run_id, "head": 0, "start": chain.digest, "earlier": earlier}
    try:
        info = await host.store.info(run_id)
    except RunUnknown:
        return
    except StoreCorrupt as error:
        yield known
        yield _stopped(run_id, str(error))
        return
    yield {
        **known, "graph": info.graph, "content": info.content, "status": info.status, "created": info.created,
        "updated": info.updated, "head": info.head, **await exports(host, info),
    }  # fmt: skip
    async for fields in _records(host, info, chain, content=content):
        yield fields


async def _records(host: Host, info: RunInfo, chain: Chain, *, content: bool) -> AsyncIterator[JsonObject]:
    """Yield the lines of a run's records. A last line says why there are fewer than its row says."""
    after, calls, why = 0, dict[str, JsonObject](), ""
    while after < max(info.head, 1) and not why:
        try:
            records = await host.store.read(info.run_id, after=after, limit=AT_ONCE)  # no upto: it checks the head
            why = "" if records else "it was deleted while the file was written"
        except RunUnknown:
            records, why = [], "it was deleted while the file was written"
        except StoreUnavailable:
            raise
        except StoreError as error:  # damaged, by a newer version, in an archive, or encrypted with another key
            records = [one for one in vars(error).get("records", ()) if one.seq > after]
            why = str(error) or repr(error)
        for record in records:
            if record.seq > info.head:  # written after the run's line
                break
            try:
                line = await away(partial(_line, record, chain, calls, content=content), record)
            except (ValueError, RecursionError) as error:
                why = f"record {record.seq} cannot be written as JSON ({error})"
                break
            yield line
            after += 1
    if why:
        yield _stopped(info.run_id, why)


def _stopped(run_id: str, why: str) -> JsonObject:
    """Return the line which says why records of a run are not in the file."""
    shown = redact(why)
    logger.warning("run %s: not all of its records are in the audit: %s", run_id, shown)
    return {"type": "stopped", "run_id": run_id, "why": shown}


def _line(record: Record, chain: Chain, calls: dict[str, JsonObject], *, content: bool) -> JsonObject:
    """Return the line of a record.

    Args:
        record: the record.
        chain: the chain before it, which is advanced.
        calls: what is known of questions and calls of the run, which is added to.
        content: whether to include the record itself.
    """
    chain.holds(record)
    fields: dict[str, Any] = as_json(record)
    facts = {name: fields[name] for name in _FACTS.get(record.type, "").split() if name in fields}
    for name in _DIGESTS.get(record.type, "").split():
        if fields.get(name) is not None:
            facts[f"{name}_digest"] = digest(fields[name])
    facts = cast("dict[str, Any]", redacted({**facts, **_more(fields, calls)}))
    line = {"type": record.type, "seq": record.seq, "ts": record.ts, **facts}
    if content:
        whole = encode_unsealed(record)
        shown = redacted(fields := json.loads(whole))
        line |= {"record": whole.decode()} if shown == fields else {"redacted": shown}
    return {**line, "chain": chain.digest, "seal": record.seal}


def _more(fields: dict[str, Any], calls: dict[str, JsonObject]) -> JsonObject:
    """Return further facts of a record: what a question showed, the decision, the risk of a call."""
    if fields["type"] == "asked":
        question = fields["question"]
        payload = question.get("payload", {})
        facts = {"question": question["id"], "kind": question["kind"], "shown": question.get("digest", "")}
        facts |= {
            name: payload[name]
            for name in ("tool", "risk", "effect")
            if question["kind"] == "approval" and name in payload
        }
        calls[question["id"]] = facts
        calls[digest([payload.get("tool"), payload.get("args")])] = facts
        return facts
    if fields["type"] == "answered":
        asked = calls.get(fields["question"], {})
        decision = fields["answer"]["type"]
        if "args" in fields["answer"]:
            calls[digest([asked.get("tool"), fields["answer"]["args"]])] = asked
        return {"shown": asked.get("shown", ""), "decision": decision}
    if fields["type"] == "effect_intended" and fields["kind"] == "tool":
        asked = calls.get(digest([fields["name"], fields.get("request", {}).get("args")]), {})
        return {name: asked[name] for name in ("question", "risk") if name in asked}
    return {}


# -- check -------------------------------------------------------------------------------------------------------


async def differs(
    host: Host, runs: Mapping[str, tuple[int, str, Collection[str]]], proofs: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return how a store differs from a checked file of it, for people.

    Args:
        host: the executor with the store.
        runs: id of a run -> the number of its last record in the file, the chain up to there, and the digests of the
            proofs that earlier runs with its id were deleted: they prove nothing about this one.
        proofs: those of the deletions in the file.
    """
    seal = seal_of(host)
    kept = {digest(proof) async for _, proof in _proofs(host, warn=True)}
    gone: dict[str, list[dict[str, Any]]] = {}
    async for proof in deletions(host):
        gone.setdefault(proof["run_id"], []).append(proof)
    found = [
        f"run {one['run_id']!r}: the proof of its deletion is missing" for one in proofs if digest(one) not in kept
    ]
    for run_id, (head, chain, earlier) in runs.items():
        own = [one for one in gone.get(run_id, ()) if digest(one) not in earlier]
        valid = [one for one in own if seal.key is None or seal.sealed_message(run_id, one)]
        # a run may have gone on after the file was written
        if any((one["head"], one["chain"]) == (head, chain) or one["head"] > head for one in valid):
            continue
        try:
            if await _chain_of(host, run_id, head) != chain:
                found.append(f"run {run_id!r}: its first {head} records are others than in the file")
        except RunUnknown:
            why = "there is no proof of its deletion"
            if own:
                why = f"the proof of its deletion {'is of other records' if valid else 'has no valid seal'}"
            found.append(f"run {run_id!r}: it is not in the store, and {why}")
        except StoreUnavailable:
            raise
        except StoreError as error:
            found.append(str(error))
    return found


async def _chain_of(host: Host, run_id: str, head: int) -> str:
    """Return the digest of the first records of a run.

    Raises:
        RunUnknown: the store has no such run.
        StoreError: the records cannot be read.
    """
    chain, after = seal_of(host).chain(run_id), 0
    await host.store.info(run_id)  # also if the file has no record of it
    while after < head:
        records = await host.store.read(run_id, after=after, upto=head, limit=AT_ONCE)
        for record in records:
            chain.holds(record)
        if not records:
            return ""
        after += len(records)
    return chain.digest
