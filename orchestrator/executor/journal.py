"""The write buffer of one run's journal: records are written in groups by the first task that waits for them.

`put` only buffers. `durable` waits until all records put so far are in the store: if no write is in progress, the
caller writes the whole buffer with one `append`, else it waits for the write and checks again. So steps that need no
commit never wait, and steps that wait at the same time share one.

Each write also updates the run's row, which is computed from the folded run: lists of runs do not read journals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Protocol, TypeAlias

import anyio

from orchestrator.graph.limits import Usage
from orchestrator.json import canonical, storable
from orchestrator.kernel.ledger import Tally
from orchestrator.kernel.queries import first_question
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import Ended, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Chain
from orchestrator.kernel.status import Parent
from orchestrator.stores.base import RunInfo, RunSummary, Store
from orchestrator.stores.requests import Append
from orchestrator.stores.rows import MAX_TEXT, OpenQuestion, ReplayFacts, RunTotals, Total

_LONGEST_WORD = 300
"""Maximum characters of a word that is left out whole where a text is cut."""


def summary_of(machine: RunState) -> RunSummary:
    """Return the summary of a run for its row, which lists of runs show."""
    ended = machine.ended
    question = first_question(machine) if machine.questions else None
    return RunSummary(
        error="" if ended is None else _error_of(machine, ended),
        input=_input_of(machine),
        output="" if ended is None else _output_of(ended),
        question="" if question is None else short_text(question.prompt or question.kind),
        usage=(usage := machine.own_usage),
        steps=usage.steps,
        replay=_replay_of(machine),
    )


def _error_of(machine: RunState, ended: Ended) -> str:
    if machine.diverged_because:
        return short_text(machine.diverged_because)
    return "" if ended.error is None else short_text(str(ended.error))


def _replay_of(machine: RunState) -> ReplayFacts | None:
    if machine.fork is None or machine.fork.relation != "replay":
        return None
    saved = machine.saved
    return ReplayFacts(machine.diverged, saved.calls, saved.tokens, saved.cost)


def row_of(machine: RunState, *, structure: str, content: str, calling: RunState | None = None) -> RunInfo:
    """Return the row of a run that is added to a store.

    Args:
        machine: the run, folded over the records that are added with the row.
        structure: digest of the graph of its first record.
        content: digest of that graph's content.
        calling: the run that called this one's graph as a tool, if available.
    """
    summary = summary_of(machine)
    return RunInfo(
        machine.run_id,
        machine.plan.name,
        machine.status,
        machine.labels,
        machine.created,
        machine.updated,
        machine.head,
        structure,
        content,
        due_of(machine),
        len(machine.questions),
        summary.error,
        summary.input,
        summary.output,
        summary.question,
        summary.usage,
        summary.steps,
        parent_of(machine, calling),
        totals=totals_of(machine, summary.usage),
        questions=questions_of(machine),
        replay=summary.replay,
    )


def totals_of(machine: RunState, used: Usage | None = None) -> RunTotals:
    """Return the usage of a run, by node and by the models and tools that its nodes called.

    `used`: the run's own usage; None: read it from `machine`.
    """
    found = sorted(machine.totals.tallies.items())
    seconds = (used or machine.own_usage).seconds
    return RunTotals(tuple([Total(*place, *_counts(tally)) for place, tally in found]), seconds)


_counts = attrgetter(*(one.name for one in fields(Tally)))


Listed: TypeAlias = dict[str, tuple[Question, OpenQuestion]]
"""Open question -> its object, and what is listed of it."""


def questions_of(machine: RunState, listed: Listed | None = None) -> tuple[OpenQuestion, ...]:
    """Return the open questions of a run.

    Args:
        machine: the run.
        listed: the result of the last call, which is updated. Each question is then written as data once, however many
            are asked after it.
    """
    known, found = {} if listed is None else listed, []
    for name, question in machine.questions.items():
        asked, before = machine.asked.get(name, machine.updated), known.get(name)
        if before is None or before[0] is not question or before[1].asked != asked:
            row = OpenQuestion(name, asked, question.kind, question.model_dump(mode="json"))
            before = known[name] = question, row
        found.append(before[1])
    for name in known.keys() - machine.questions.keys():
        del known[name]
    return tuple(sorted(found, key=lambda one: (one.asked, one.id)))


def due_of(machine: RunState) -> float | None:
    """Return the next deadline of an open question, Unix seconds, if the run waits for it; None while steps run.

    A fork that is not started has no deadline.
    """
    if not machine.questions or machine.status != "paused" or machine.is_held:
        return None
    return min((q.deadline for q in machine.questions.values() if q.deadline is not None), default=None)


def _input_of(machine: RunState) -> str:
    started = machine.started
    if started is None:
        return ""
    graph = machine.plan.graph
    fields = None if graph is None else graph.input
    if isinstance(fields, str):
        return short_text(started.values.get(fields))
    if fields:
        return short_text({name: started.values.get(name) for name in fields})
    return short_text(started.values)


def _output_of(ended: Ended) -> str:
    return short_text(ended.output)


def short_text(value: object) -> str:
    """Return a value as text, a string unchanged and others as JSON; cut to the length that a row holds."""
    if value is None:
        return ""
    # Twice as many characters: half pairs of surrogates become one.
    value, _ = _beginning(value, 2 * MAX_TEXT + 2)
    text = storable(value if isinstance(value, str) else canonical(value))
    if len(text) <= MAX_TEXT:
        return text
    kept = text[: MAX_TEXT - 1]
    # The last word is left out whole: redaction patterns do not match half of a secret.
    words, _, last = kept.rpartition(" ")
    return f"{words if words and len(last) <= _LONGEST_WORD else kept}…"


def _beginning(value: object, room: int) -> tuple[object, int]:
    """Return the part of a JSON value that produces the first characters of its text, however large the value is.

    Args:
        value: the value.
        room: number of characters.

    Returns:
        The part, and the number of characters that remain.
    """
    if isinstance(value, str):
        return value[:room], room - len(value)
    if not isinstance(value, dict | list):
        return value, room - 1
    if isinstance(value, list):
        first = value[: max(0, room)]
        if _SHORT.issuperset(map(type, first)):  # like below, for all items at once
            return first, room - len(first)
    names = sorted(value) if isinstance(value, dict) else range(len(value))
    parts: list[object] = []
    for name in names:
        if room <= 0:
            break
        part: object = value[name]
        room -= len(name) + 1 if isinstance(name, str) else 1
        if isinstance(part, dict | list | str):
            part, room = _beginning(part, room)
        parts.append(part)
    return (dict(zip(names, parts, strict=False)) if isinstance(value, dict) else parts), room


_SHORT = frozenset({int, float, bool, type(None)})
"""Types of values that count as one character."""


def parent_of(machine: RunState, calling: RunState | None) -> Parent | None:
    """Return the run from which a run was made: as a fork or replay, or by a call of its graph as a tool.

    Args:
        machine: the run.
        calling: the calling run, if available.
    """
    fork, caller = machine.fork, machine.caller
    if fork is not None:
        return Parent(fork.parent, fork.at, fork.relation)
    if caller is None:
        return None
    entry = None if calling is None else calling.ledger.entry(caller.key)
    return Parent(caller.run_id, 0 if entry is None else entry.intended.seq, "call")


SUMMARY_SECONDS = 1.0
"""Seconds between updates of a run's usage in its row; a change of status also updates it."""

LAST_FLUSH = 10.0
"""Seconds that an interrupted run has to write its buffer."""

MOST = 256
"""Maximum number of buffered records; beyond it the buffer is written before another record is put."""


class Journal:
    """Buffer and head of one run's journal. It belongs to one holder of the run's lease, whose token fences it."""

    __slots__ = (
        "_asked",
        "_consumed",
        "_done",
        "_listed",
        "_row",
        "_summarized",
        "_writing",
        "buffer",
        "chain",
        "due_of",
        "fault",
        "head",
        "lease",
        "on_stored",
        "released",
        "run_id",
        "snapshot_of",
        "store",
        "stored",
    )

    def __init__(
        self,
        store: Store,
        run_id: str,
        stored: int,
        lease: str,
        *,
        on_stored: Callable[[Sequence[Record]], None],
        due_of: Callable[[RunState], float | None],
        snapshot_of: Callable[[RunState], bytes | None],
        chain: Chain | None,
    ) -> None:
        """
        Args:
            store: the run's store.
            run_id: the run's id.
            stored: `seq` of its last record.
            lease: the token of its lease.
            on_stored: called with records that are durable.
            due_of: when the next deadline of an open question passes, Unix seconds.
            snapshot_of: makes the snapshot stored with a run that pauses or ends, so that loading it needs no fold.
            chain: seals records; None: they are not sealed.
        """
        self.store, self.run_id, self.lease = store, run_id, lease
        self.stored = self.head = stored
        """`seq` of the last record that is durable, and of the last one put."""
        self.buffer: list[Record] = []
        self.fault: Exception | None = None
        """Error because of which no more records can be written."""
        self.released = False
        """True if the run has ended, and its lease was released with its last record."""
        self.chain, self.due_of, self.snapshot_of = chain, due_of, snapshot_of
        self.on_stored: Callable[[Sequence[Record]], None] | None = on_stored
        self._consumed: list[int] = []
        self._writing = False
        self._done: anyio.Event | None = None
        """Set when the write in progress has ended; created by the first task that waits for it."""
        self._row: tuple[str, float | None, int] | None = None
        self._listed: Listed = {}
        self._asked: tuple[str, ...] | None = None
        """Open questions of the run in the store."""
        self._summarized = 0.0
        """`ts` of the record with which the row's summary was last written."""

    def put(self, record: Record, message: int | None = None) -> None:
        """Buffer a record, and delete the inbox message that contained it when it is stored."""
        if self.chain is not None:
            record = self.chain.sealed(record)
        self.buffer.append(record)
        self.head = record.seq
        if message is not None:
            self._consumed.append(message)

    def reopen(self) -> None:
        """Record that the machine is one record ahead of the store: that record is put next."""
        self.stored = self.head = self.head - 1

    def note_row(self, info: RunInfo) -> None:
        """Record the current content of the run's row."""
        self._row = info.status, info.due, info.waiting
        self._asked = None if info.waiting else ()
        self._summarized = info.updated

    async def durable(self, machine: RunState) -> None:
        """Return when all records put before this call are in the store.

        Raises:
            RunConflict: another executor took over the lease, or continued the run.
            StoreError: the store cannot write. Both are final for this journal.
        """
        wanted = self.head
        while self.stored < wanted:
            if self.fault is not None:
                raise self.fault
            if not self._writing:
                await self._write(machine)
            else:
                if self._done is None:
                    self._done = anyio.Event()
                await self._done.wait()

    async def _write(self, machine: RunState) -> None:
        self._writing = True
        records, consumed = self.buffer, self._consumed
        self.buffer, self._consumed = [], []
        row = (machine.status, self.due_of(machine), len(machine.questions))
        ends = bool(records) and records[-1].type == "ended"
        changed = ends or row != self._row
        asked = tuple(machine.questions)
        summarizes = changed or abs(machine.updated - self._summarized) >= SUMMARY_SECONDS
        # Where records are sealed, snapshots are not trusted: they have no seal.
        rests = changed and row[0] != "running" and self.chain is None
        try:
            append = Append(self.run_id, records, after=self.stored, consumed=consumed, lease=self.lease, release=ends)
            if changed:
                append.status, append.due, append.waiting = row
            if rests and records and machine.head == records[-1].seq:
                append.snapshot = self.snapshot_of(machine)
            if summarizes:
                append.summary = summary_of(machine)
                append.totals = totals_of(machine, append.summary.usage)
            if asked != self._asked:
                append.questions = questions_of(machine, self._listed)
            self.stored = await self.store.append(append)
        except BaseException as error:
            # Whether they were written is unknown; the store's head decides when the run is resumed.
            self.fault = error if isinstance(error, Exception) else RuntimeError("a write was interrupted")
            raise
        finally:
            self._writing = False
            done, self._done = self._done, None
            if done is not None:
                done.set()
        self._row, self._asked, self.released = row, asked, ends
        if summarizes:
            self._summarized = records[-1].ts if records else self._summarized
        if self.on_stored is not None:
            self.on_stored(records)


FLUSH_AFTER = 0.05
"""Longest time in seconds that a record without a waiting caller stays in the buffer."""


class Buffered(Protocol):
    """A run with buffered records."""

    def flush(self) -> None:
        """Start to write the buffered records, if steps run."""


class Flusher:
    """Flushes runs whose buffered records are overdue."""

    def __init__(self) -> None:
        self._late: dict[Buffered, None] = {}
        self._some = anyio.Event()

    def reset(self) -> None:
        """Forget earlier runs and the event loop."""
        self._late, self._some = {}, anyio.Event()

    def note(self, log: Buffered) -> None:
        """Record that a run has buffered records."""
        if not self._late and not self._some.is_set():
            self._some.set()
        self._late[log] = None

    def forget(self, log: Buffered) -> None:
        """Forget a run whose buffer is written. Runs that have ended are not kept until others are flushed."""
        self._late.pop(log, None)

    async def run(self) -> None:
        """Flush runs for as long as the executor is open."""
        while True:
            await self._some.wait()
            await anyio.sleep(FLUSH_AFTER)
            self._some = anyio.Event()
            late, self._late = self._late, {}
            for log in late:
                log.flush()
