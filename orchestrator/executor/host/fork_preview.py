"""What a fork would reuse, make again and ask about, before there is one.

The fork is drafted as it would be made, so whatever refuses it refuses the preview. What becomes of the calls of its
open steps is what `replay` decides when a step asks for them; the calls that it would ask about are those that the
question before them would show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.executor.effects.decide import end_inside, find, kept_in_fork
from orchestrator.executor.effects.earlier_calls import FamilyCall, irreversible_calls, relatives
from orchestrator.executor.host.forks import Draft, Order, check_order, draft_of
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.offered_tools import irreversible_ahead
from orchestrator.executor.host.start import check_new_id
from orchestrator.graph.limits import Usage
from orchestrator.kernel.ledger import EffectEntry, did_irreversible
from orchestrator.kernel.records import EffectIntended, EffectSettled, Record, StepDone
from orchestrator.kernel.run_state import RunState

_JOURNALS = 20
"""Journals of relatives that are read for a preview: those of the nearest."""


@dataclass(frozen=True, slots=True)
class ForkedCall:
    """A call in the records that a fork begins with, and what becomes of it in the fork."""

    seq: int
    """Of the record with its intent."""
    kind: str
    name: str
    node: str
    effect: str
    became: Literal["reused", "repeated"]
    """`reused`: its result counts in the fork. `repeated`: it counts as not made."""


@dataclass(frozen=True, slots=True)
class ForkPreview:
    """What a fork would be."""

    at: int
    status: str
    steps: int
    """How many steps had ended: they do not run again."""
    calls: int
    """How many calls were settled."""
    usage: Usage
    """What counts against the limits of the fork: `fork.inherited`."""
    open_calls: tuple[ForkedCall, ...]
    """Calls of the steps that had not ended."""
    done: tuple[ForkedCall, ...]
    """Calls of ended steps that cannot be undone: they are not made again."""
    relatives: tuple[tuple[str, FamilyCall], ...]
    """Name and call of all that relatives made behind what the fork has, and that cannot be undone: the fork asks
    before it makes them."""
    gone: tuple[str, ...]
    """Relatives that are deleted, so that what they called is not known."""
    irreversible: tuple[str, ...]
    """The tools that the steps ahead may call, and whose calls cannot be undone: the fork asks before each call."""
    withdrawn: int
    """How many approvals do not count in the fork."""
    changes: tuple[str, ...]
    """What the version of the graph changes that it continues in."""


async def preview(host: Host, order: Order, *, start: bool) -> ForkPreview:
    """See `ExecutorForks.preview`."""
    check_order(order)
    name = os.urandom(8).hex() if order.run_id is None else check_new_id(order.run_id)
    draft = await draft_of(host, order, name, start=start, hold=not start)
    machine = draft.machine
    copied = draft.records[: machine.forked_at - 1]
    family = await relatives(host.store, name, draft.records, _JOURNALS)
    settled = [record for record in copied if isinstance(record, EffectSettled) and record.next_at is None]
    fork = machine.fork
    return ForkPreview(
        at=len(copied),
        status=machine.status,
        steps=sum(isinstance(record, StepDone) for record in copied),
        calls=len({record.key for record in settled}),
        usage=machine.inherited,
        open_calls=tuple(_open_calls(machine, copied)),
        done=tuple(_done(machine, copied)),
        relatives=tuple(irreversible_calls(family, copied)),
        gone=tuple(family.gone),
        irreversible=_ahead(host, draft),
        withdrawn=0 if fork is None else len(fork.withdrawn),
        changes=draft.changes,
    )


def _ahead(host: Host, draft: Draft) -> tuple[str, ...]:
    return irreversible_ahead(draft.machine, draft.graph, host.resources.tools)


def _open_calls(machine: RunState, copied: Sequence[Record]) -> Iterator[ForkedCall]:
    """The calls of the steps that the fork goes on with."""
    for entry in _calls(copied):
        token = machine.activation(entry.intended.activation)
        if token is None:
            continue
        intended, entries = entry.intended, machine.ledger.of(token.key)
        subject = intended.name, intended.digest, intended.occurrence, token.attempt
        inner = entry.settled is not None and end_inside(entry.settled) != ""  # a graph was called
        known = find(entries, *subject, reopened=token.reopened, continues=inner)
        kept = None
        if known is not None and known.intended.key == intended.key:
            kept = kept_in_fork(known, token.attempt, continues=inner, reopened=token.reopened)
        yield _forked(entry, "repeated" if kept is None else "reused")


def _done(machine: RunState, copied: Sequence[Record]) -> Iterator[ForkedCall]:
    """The calls of steps that are over which cannot be undone, and happened."""
    for entry in _calls(copied):
        settled = entry.settled
        lasts = entry.intended.effect == "irreversible" or (settled is not None and did_irreversible(settled.result))
        if lasts and entry.may_have_happened and machine.activation(entry.intended.activation) is None:
            yield _forked(entry, "reused")


def _calls(records: Sequence[Record]) -> list[EffectEntry]:
    """The calls in some records, with how each ended."""
    found: dict[str, EffectEntry] = {}
    for record in records:
        if isinstance(record, EffectIntended):
            found.setdefault(record.key, EffectEntry(record, began=record.seq)).intended = record
        elif isinstance(record, EffectSettled) and record.key in found:
            found[record.key].settled = record
    return [*found.values()]


def _forked(entry: EffectEntry, became: Literal["reused", "repeated"]) -> ForkedCall:
    intended = entry.intended
    return ForkedCall(intended.seq, intended.kind, intended.name, intended.node, intended.effect, became)
