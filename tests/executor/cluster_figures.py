"""What faults did to the runs of a cluster: figures from the diary outside and from the journals, and their laws."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from orchestrator.kernel.records import Asked, EffectIntended, EffectSettled, Ended, Record
from orchestrator.stores import open_store
from tests.executor.cluster import POLL, Cluster, Struck
from tests.executor.errand_program import EFFECTS, ERRAND, IRREVERSIBLE
from tests.executor.outside import Asked as Call

GRACE = 1.0
"""Seconds after the end of a lease within which its run goes on, unless the machine has other things to do."""
LOCKED = 5.0
"""Seconds more if the victim fell silent in the middle of a transaction: so long does the server keep its locks."""
ON_THE_WAY = 0.2
"""Seconds that a call may need to arrive."""


@dataclass
class Figures:
    """What a storm came to."""

    ttl: float
    faults: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    """Irreversible effects."""
    doubled: int = 0
    """Those that were done twice, although nobody had looked for them and found nothing."""
    doubled_asked: int = 0
    """Those that were done twice after somebody had found nothing: the first call was still on its way then."""
    lost: int = 0
    """Those that a journal has and the diary has not."""
    late: list[str] = field(default_factory=list)
    """Those whose function was called after the journal had them as settled."""
    questions: int = 0
    happened: int = 0
    """Questions to which the answer was that the effect had happened."""
    repeated: int = 0
    """Idempotent calls that were made once more."""
    taken_over: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Kind -> seconds from the fault until a run of the victim went on elsewhere."""
    resumed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Kind -> seconds from healing until the victim, or both workers, worked again."""
    after_lease: list[float] = field(default_factory=list)
    """Seconds after the end of its lease at which a worker that was cut off from the database made calls."""
    last_calls: list[float] = field(default_factory=list)
    """Seconds from the cut to the last call of a worker that was cut off from the database for longer than a lease."""

    def check(self) -> None:
        """Hold the figures against the laws."""
        assert set(self.statuses) == {"completed"}, self.statuses
        assert self.doubled == 0, self
        assert self.lost == 0, self
        assert not self.late, self.late
        assert not self.after_lease, self.after_lease
        times = [seconds for found in self.taken_over.values() for seconds in found]
        if times:  # of faults that the plan knows
            assert median(times) <= self.ttl + GRACE, self.taken_over
            assert max(times) <= self.ttl + GRACE + LOCKED, self.taken_over

    def lines(self) -> list[str]:
        """As text."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        runs = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        found = [
            f"{self.faults.total()} faults: {kinds}",
            f"{self.runs} runs ({runs})",
            f"{self.effects} irreversible effects: {self.doubled} doubled, {self.doubled_asked} doubled after a look",
            f"{self.lost} lost, {len(self.late)} called after they were settled",
            f"{self.questions} questions ({self.happened} had happened), {self.repeated} idempotent calls repeated",
            f"a lease lasts {self.ttl:g} s; a worker looks for runs every {POLL:g} s",
        ]
        found += [f"{kind}: taken over {_spread(times)}" for kind, times in sorted(self.taken_over.items())]
        found += [f"{kind}: healed, works again {_spread(times)}" for kind, times in sorted(self.resumed.items())]
        if self.last_calls:
            found.append(f"cut off from the database: the last call {_spread(self.last_calls)} after the cut")
        return found


def _spread(times: Sequence[float]) -> str:
    return f"median {median(times):.2f} s, worst {max(times):.2f} s ({len(times)})"


def figures(cluster: Cluster) -> Figures:
    """Read all journals of a cluster whose runs have ended, and count."""
    store = open_store(cluster.database.url())
    found = Figures(cluster.ttl)
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in list(cluster.world.asked):
        calls[call.key].append(call)
    journals = {run_id: store.read_now(run_id) for run_id in cluster.office.run_ids}
    looked = Counter(key for _, key, there in cluster.office.looked if not there)
    for run_id, journal in journals.items():
        _count(found, run_id, journal, calls, looked)
    for struck in cluster.struck:
        found.faults[struck.fault.kind] += 1
        found.resumed[struck.fault.kind].append(struck.works - struck.healed)
        if struck.life:
            _count_fault(found, struck, journals, calls)
    found.happened = sum(there for _, _, there in cluster.office.looked)
    return found


def _count(
    found: Figures, run_id: str, journal: Sequence[Record], calls: Mapping[str, Sequence[Call]], looked: Counter[str]
) -> None:
    assert [record.seq for record in journal] == list(range(1, len(journal) + 1)), run_id
    found.runs += 1
    assert sum(isinstance(record, Ended) for record in journal) == 1, run_id
    last = journal[-1]
    assert isinstance(last, Ended), f"{run_id} ends with {last}"
    found.statuses[last.status] += 1
    found.questions += sum(isinstance(record, Asked) for record in journal)
    settled = {record.key: record for record in journal if isinstance(record, EffectSettled) and record.ok}
    names = {record.key: record.name for record in journal if isinstance(record, EffectIntended)}
    assert sorted(names[key] for key in settled) == sorted(EFFECTS), f"{run_id}: {settled}"
    for key, record in settled.items():
        made = calls.get(key, ())
        if names[key] not in IRREVERSIBLE:
            found.repeated += max(0, len(made) - 1)
            continue
        found.effects += 1
        found.lost += not made
        if len(made) > 1:
            # Each look that found nothing led to one call more; an earlier one may have been on its way.
            excused = len(made) <= 1 + looked[key]
            found.doubled += not excused
            found.doubled_asked += excused
        late = [call for call in made if call.began > record.ts]
        found.late += [f"{run_id} {names[key]}: {call}, settled at {record.ts}" for call in late]


def _count_fault(
    found: Figures, struck: Struck, journals: Mapping[str, Sequence[Record]], calls: Mapping[str, Sequence[Call]]
) -> None:
    kind, ttl = struck.fault.kind, found.ttl
    longer = kind == "kill" or struck.fault.length > ttl * 1.1
    if longer:
        for run_id, journal in journals.items():
            if run_id.startswith(ERRAND.name) and _held(journal, struck, calls):
                again = [record.ts for record in journal if record.type == "resumed" and record.ts > struck.began]
                if again:
                    found.taken_over[kind].append(again[0] - struck.began)
    if kind in ("mute", "deaf") and longer:
        inside = [
            call.at - struck.began
            for made in calls.values() for call in made
            if call.life == struck.life and struck.began < call.at < struck.healed
        ]  # fmt: skip
        found.last_calls.append(max(inside, default=0.0))
        found.after_lease += [seconds for seconds in inside if seconds > ttl + ON_THE_WAY]


def _held(journal: Sequence[Record], struck: Struck, calls: Mapping[str, Sequence[Call]]) -> bool:
    """Whether the victim was driving this run when the fault began."""
    before = [record for record in journal if record.ts <= struck.began]
    if not before or before[-1].type in ("asked", "paused", "ended", "answered"):
        return False
    start = max((place for place, record in enumerate(before) if record.type == "resumed"), default=0)
    intents = [record for record in before[start:] if isinstance(record, EffectIntended)]
    made = [call for intent in intents for call in calls.get(intent.key, ()) if call.at <= struck.began]
    return bool(made) and made[-1].life == struck.life
