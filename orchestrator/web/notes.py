"""Notes and scores of people on runs and steps: written, listed and deleted by requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from orchestrator.errors import InvalidValue
from orchestrator.executor.notes import MAX_NOTE, MAX_NOTE_NAME
from orchestrator.stores.base import Note
from orchestrator.web.documents import Document, blank
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import HttpProblem, fields_problem
from orchestrator.web.requests import Body, Name, NoQuery, Query, Seq


class NotesQuery(Query):
    """Which notes of a run are listed."""

    step: Seq | None = Field(None, description="Only notes about the step that this record ended.")


class NoteBody(Body):
    """A note about a run, or about one of its steps. It needs a text or a score."""

    text: Annotated[str, StringConstraints(max_length=MAX_NOTE)] = ""
    step: Seq | None = Field(None, description="The record that ended the step; null: the note is about the run.")
    score: float | None = Field(None, ge=-1e300, le=1e300, description="Any number.")
    name: Annotated[str, StringConstraints(max_length=MAX_NOTE_NAME)] = Field(
        "", description="What the score measures, or what kind of note it is."
    )
    by: Name = Field("", description="Who writes it. With a login of the application, its name or nothing.")


class NoteDocument(Document):
    """A note of a run."""

    id: str
    step: Annotated[int | None, Field(description="The record that ended the step; null: the note is about the run.")]
    text: str
    score: float | None
    name: str
    by: str
    at: Annotated[float, Field(description="Unix seconds.")]


class NoteList(Document):
    """The notes of a run, the oldest first."""

    notes: list[NoteDocument]


class NoteDeleted(Document):
    """The note that was deleted."""

    deleted: str


def _document(note: Note) -> NoteDocument:
    said = {name: blank(text) for name, text in (("text", note.text), ("name", note.name), ("by", note.by))}
    return NoteDocument(id=note.id, step=note.step, score=note.score, at=note.at, **said)


async def listing(call: Call[NotesQuery]) -> NoteList:
    """Return the notes of a run."""
    found = await call.executor.notes.list(call.run_id, step=call.query.step)
    return NoteList(notes=[_document(note) for note in found])


async def write(call: Call[NoQuery, NoteBody]) -> NoteDocument:
    """Write a note; the principal is its author."""
    body = call.body
    by, write_note = call.by(body.by), call.executor.notes.write
    try:
        note = await write_note(call.run_id, body.text, step=body.step, score=body.score, name=body.name, by=by)
    except InvalidValue as error:
        if error.where not in NoteBody.model_fields:
            raise
        raise fields_problem([{"field": error.where, "message": str(error)}], "body") from None
    return _document(note)


async def delete(call: Call[NoQuery]) -> NoteDeleted:
    """Delete a note; a principal deletes only its own."""
    name = call.request.path_params["note"]
    found = next((note for note in await call.executor.notes.list(call.run_id) if note.id == name), None)
    if found is not None and call.principal and found.by != call.principal:
        raise HttpProblem(403, "note-of-another", "another person wrote this note: you can delete only your own")
    if found is None or not await call.executor.notes.delete(call.run_id, name):
        raise HttpProblem(404, "note-unknown", f"run {call.run_id!r} has no such note")
    return NoteDeleted(deleted=name)
