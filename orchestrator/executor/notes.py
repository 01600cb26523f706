"""Notes and scores of people on runs and steps. They are kept beside the journal: no run sees them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from orchestrator.errors import InvalidValue
from orchestrator.executor.host import Host
from orchestrator.stores.rows import MAX_NOTES, Note, finite
from orchestrator.values import check_position, check_text

MAX_NOTE = 4_000
"""Maximum number of characters of a note's text."""
MAX_NOTE_NAME = 100
MAX_NOTE_BY = 200
_MAX_ID = 100
_ENDS = ("step_done", "step_failed")


def checked_note(note: Note) -> Note:
    """Return a note, if it may be stored.

    Raises:
        InvalidValue: it is empty or too long, or its score is not a finite number.
    """
    for where, text, most in (
        ("text", note.text, MAX_NOTE),
        ("name", note.name, MAX_NOTE_NAME),
        ("by", note.by, MAX_NOTE_BY),
        ("id", note.id, _MAX_ID),
    ):
        if len(check_text(text, where)) > most:
            raise InvalidValue(f"{where}: it has {len(text):,} characters, and the limit is {most:,}", where=where)
    if note.score is None:
        if not note.text.strip():
            raise InvalidValue("a note needs a text or a score", where="text")
        return note
    if isinstance(note.score, bool) or not isinstance(note.score, int | float):
        raise InvalidValue(f"score: it is of type {type(note.score).__name__}: give a number", where="score")
    try:
        return replace(note, score=finite(note.score))
    except ValueError as error:
        raise InvalidValue(f"score: {error}", where="score") from None


class ExecutorNotes:
    """What people wrote about runs and their steps: 500 notes a run at most. Forks and replays of a run have none."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def write(
        self,
        run_id: str,
        text: str = "",
        *,
        step: int | None = None,
        score: float | None = None,
        name: str = "",
        by: str = "",
    ) -> Note:
        """Write a note about a run, or about one of its steps. It is never changed: delete it, and write another one.

        Runs that have ended or are archived can have notes, too. A note is not in the journal.

        Args:
            run_id: the run.
            text: at most 4,000 characters; empty if there is a score.
            step: number of the record that ended the step, as `history` and `orchestrator show` give it; None: the note
                is about the whole run.
            score: a finite number.
            name: what the score measures, or what kind of note it is; at most 100 characters.
            by: who writes it; at most 200 characters.

        Returns:
            The note, with its id and time.

        Raises:
            RunUnknown: the store has no such run.
            RunArchived: the note is about a step of an archived run, and the executor has no archive.
            InvalidValue: the note is empty or too long, `step` ends no step, or the run has 500 notes already.
        """
        check_position(step, "step")
        note = Note(run_id, step, text, score, name, by, self._host.resources.clock.now(), uuid4().hex[:12])
        note = checked_note(note)
        info = await self._host.store.info(run_id)
        if step is not None:
            found = await self._host.store.read(run_id, after=step - 1, upto=step) if 0 < step <= info.head else []
            if not found or found[0].type not in _ENDS:
                fault = f"record {step} of run {run_id!r} ends no step"
                raise InvalidValue(f"{fault}; `history` gives the numbers", where="step").on_command_line(
                    f"{fault}; `orchestrator show {shlex.quote(run_id)}` gives the numbers"
                )
        await self._host.store.add_note(note, most=MAX_NOTES)
        return note

    async def list(self, run_id: str, *, step: int | None = None) -> Sequence[Note]:
        """Return the notes of a run, the oldest first.

        Args:
            run_id: the run.
            step: only the notes about this step; None: all notes.

        Raises:
            RunUnknown: the store has no such run.
        """
        found = await self._host.store.notes(run_id)
        return [note for note in found if step is None or note.step == step]

    async def delete(self, run_id: str, note: str) -> bool:
        """Delete a note.

        Args:
            run_id: the run.
            note: the note's id.

        Returns:
            False if the run has no such note.

        Raises:
            RunUnknown: the store has no such run.
        """
        return await self._host.store.delete_note(run_id, note)
