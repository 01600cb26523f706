"""Seals: proof that the holder of a key wrote a run's journal, record by record, in this store.

A journal can come from anywhere, and it records what was approved. Each record that an executor with a `Seal` writes
contains a code (HMAC-SHA-256) over the run, the store's place and all records up to it, so that a record cannot be
forged, changed, moved to another run or file, or appended. Truncation is not detected: a journal that is cut back to
one of its own earlier states still has its seals.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct, structs

from orchestrator.json import canonical
from orchestrator.kernel import records as r
from orchestrator.kernel.question import Approve, Deny, Question, parts_of
from orchestrator.kernel.run_state import RunState

_BYTES = 16
"""Bytes of a seal that are kept: too many to guess."""
_APPROVING = frozenset({"approval", "unknown_outcome"})
"""Kinds of questions whose answers permit an action."""


@dataclass(frozen=True)
class Seal:
    """The key with which an executor seals its records. Approvals in records without a valid seal do not count.

        Executor(store="sqlite:///runs.db", seal=Seal(key, "/srv/runs.db"))

    Args:
        key: a secret of at least 16 random bytes, unreadable for users who can write the store. None: nothing is
            sealed, and no approval counts.
        place: the identity of the store, such as the absolute path of its file. A copy elsewhere has no valid seals.
    """

    key: bytes | None = field(repr=False)
    place: str

    def __post_init__(self) -> None:
        if self.key is not None and len(self.key) < _BYTES:
            raise ValueError(f"a key of {len(self.key)} bytes is too short: give {_BYTES} random bytes or more")

    def chain(self, run_id: str) -> Chain:
        """Return the seals of a run, before its first record."""
        return Chain(self.key, self._code("journal", {"run": run_id, "store": self.place}).encode())

    def message(self, run_id: str, body: Mapping[str, object]) -> str:
        """Return the seal of a message to the process that drives the run; empty without a key."""
        rest = {name: value for name, value in body.items() if name != "seal"}
        return "" if self.key is None else self._code("message", {"run": run_id, "store": self.place, "body": rest})

    def sealed_message(self, run_id: str, body: Mapping[str, object]) -> bool:
        """Return True if a message was sealed with this key."""
        code = self.message(run_id, body)
        return bool(code) and hmac.compare_digest(code, str(body.get("seal", "")))

    def _code(self, purpose: str, data: object) -> str:
        return hmac.new(self.key or b"", f"{purpose} {canonical(data)}".encode(), "sha256").hexdigest()


class Chain:
    """The seals of one run's journal up to a record."""

    __slots__ = ("_digest", "_key")

    def __init__(self, key: bytes | None, digest: bytes) -> None:
        self._key, self._digest = key, digest

    @property
    def digest(self) -> str:
        """The digest of the records so far, in hex; before the first one, the text that it starts from."""
        return self._digest.decode() if len(self._digest) > hashlib.sha256().digest_size else self._digest.hex()

    def sealed(self, record: r.Record) -> r.Record:
        """Advance to the next record; return it with its seal, or unchanged if there is no key."""
        code = self._next(record)
        return structs.replace(record, seal=code) if code else record

    def holds(self, record: r.Record) -> bool:
        """Advance to the next record; return True if its seal is valid."""
        code = self._next(record)
        return bool(code) and hmac.compare_digest(code, record.seal)

    def _next(self, record: r.Record) -> str:
        self._digest = hashlib.sha256(self._digest + r.encode_unsealed(record)).digest()
        if self._key is None:
            return ""
        return hmac.new(self._key, b"record " + self._digest, "sha256").digest()[:_BYTES].hex()


class Audit(Struct, frozen=True):
    """The trusted records of a journal."""

    believed: frozenset[int]
    """`seq` of the records with a valid seal."""
    chain: Chain | None
    """The chain at the journal's end; None if nothing is sealed."""
    records: Sequence[r.Record] = ()

    @property
    def whole(self) -> bool:
        """True if all records are trusted."""
        return len(self.believed) == len(self.records)

    def withdrawal(self, machine: RunState, now: float) -> r.AnswersWithdrawn | None:
        """Return the record that withdraws approvals in untrusted records; None if there are none.

        An answer stays if the action that it permitted is already done: asking again would change nothing.
        """
        if self.whole:
            return None
        questions = [name for name, answer in live_answers(machine) if self._doubtful(machine, answer)]
        policy = machine.approve is not None and not self.believes_policy()
        if not questions and not policy:
            return None
        why = "there is no valid seal of what was approved"
        return r.AnswersWithdrawn(seq=machine.head + 1, ts=now, questions=tuple(questions), policy=policy, reason=why)

    def believes_policy(self) -> bool:
        """Return True if the run's policy is trusted, and all records after it, to which it applies."""
        said = [
            one.seq for one in self.records if isinstance(one, r.RunStarted | r.Resumed) and one.approve is not None
        ]
        return bool(said) and all(record.seq in self.believed for record in self.records[said[-1] - 1 :])

    def _doubtful(self, machine: RunState, answer: r.Answered) -> bool:
        if answer.seq in self.believed or isinstance(answer.answer, Deny):
            return False
        asked = {one.question.id: one.question for one in self.records if isinstance(one, r.Asked)}
        question = asked.get(answer.question)
        if question is None or not (question.kind in _APPROVING or isinstance(answer.answer, Approve)):
            return False
        return not _done_since(machine, answer, question)


def audit(seal: Seal | None, run_id: str, records: Sequence[r.Record]) -> Audit:
    """Check the seals of a journal. Without a `seal`, no record is trusted."""
    if seal is None:
        return Audit(frozenset(), None, records)
    chain = seal.chain(run_id)
    return Audit(frozenset([record.seq for record in records if chain.holds(record)]), chain, records)


def live_answers(machine: RunState) -> Iterable[tuple[str, r.Answered]]:
    """Yield the answers of steps that are not done yet, by question."""
    for token in machine.live_tokens():
        yield from token.answers.items()


def _done_since(machine: RunState, answer: r.Answered, question: Question) -> bool:
    """Return True if the action that this answer permitted has been done since, and its outcome is known.

    Only a tool call can be checked: any other action of the step may differ from what was approved.
    """
    token = next((one for one in machine.live_tokens() if one.answers.get(answer.question) is answer), None)
    return token is not None and any(
        _is_of(entry.intended, question, answer) and entry.settled is not None and entry.settled.seq > answer.seq
        for entry in machine.ledger.of(token.key)
    )


def _is_of(intended: r.EffectIntended, question: Question, answer: r.Answered) -> bool:
    """Return True if a question is about this effect."""
    if question.kind == "unknown_outcome":
        return question.payload.get("key") == intended.key
    given = answer.answer.args if isinstance(answer.answer, Approve) else None
    shown = parts_of(question.kind, question.payload).call
    call = (shown.get("tool"), shown.get("args") if given is None else given)
    made = (intended.name, intended.request.get("args"))
    return intended.kind == "tool" and intended.seq > answer.seq and call == made


def copied(seal: Seal | None, run_id: str, checked: Audit) -> tuple[list[r.Record], Chain | None]:
    """Return records of one run as the start of another; what was trusted there stays trusted.

    Args:
        seal: the seal for the copy.
        run_id: the new run.
        checked: the records, and which of them are trusted.

    Returns:
        The records, sealed again if they were trusted and without a seal otherwise; and the chain after them.
    """
    bare = [structs.replace(record, seal="") if record.seal else record for record in checked.records]
    if seal is None:
        return bare, None
    chain = seal.chain(run_id)
    found: list[r.Record] = []
    for record in bare:
        sealed = chain.sealed(record)
        found.append(sealed if record.seq in checked.believed else record)
    return found, chain


def unused_approvals(machine: RunState, asked: Iterable[r.Asked]) -> list[str]:
    """Return the ids of questions of unfinished steps whose answers permit an action that is not done yet.

    Args:
        machine: the run.
        asked: its records of questions.
    """
    questions = {one.question.id: one.question for one in asked}
    found: list[str] = []
    for name, answer in live_answers(machine):
        question = questions.get(name)
        if question is None or isinstance(answer.answer, Deny):
            continue
        allows = question.kind in _APPROVING or isinstance(answer.answer, Approve)
        if allows and not _done_since(machine, answer, question):
            found.append(name)
    return found
