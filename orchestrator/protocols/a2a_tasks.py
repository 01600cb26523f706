"""Runs as tasks of A2A."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import install_command
from orchestrator.kernel.question import parts_of
from orchestrator.protocols import conversation as c
from orchestrator.protocols.incoming import THREAD, described, interrupt_id
from orchestrator.redaction import redact

try:
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.json_format import ParseDict
except ImportError:
    raise ImportError(f"A2A needs other packages: {install_command('a2a')}") from None

if TYPE_CHECKING:
    from orchestrator.stores.base import RunInfo

STATES = {
    "running": "TASK_STATE_WORKING",
    "interrupted": "TASK_STATE_WORKING",
    "paused": "TASK_STATE_INPUT_REQUIRED",
    "completed": "TASK_STATE_COMPLETED",
    "cancelled": "TASK_STATE_CANCELED",
    "failed": "TASK_STATE_FAILED",
    "exhausted": "TASK_STATE_FAILED",
}
"""Status of a run -> the state of its task."""


def context_of(row: RunInfo) -> str:
    """Return the context of a task."""
    return row.labels.get(THREAD) or row.run_id


def task_of(row: RunInfo, conversation: c.Conversation, length: int | None) -> pb.Task:
    """Return a run as a task.

    Args:
        row: the row of the run.
        conversation: the run, as far as it is shown.
        length: maximum number of messages of its history; None: all.
    """
    said = [one for one in conversation.messages.values() if one.role == "user"]
    kept = said if length is None else said[len(said) - min(length, len(said)) :]
    replies = [one for one in conversation.messages.values() if one.role == "assistant" and one.shown and one.text]
    task = pb.Task(
        id=row.run_id,
        context_id=context_of(row),
        history=[_message(one.id, [pb.Part(text=one.text)], pb.Role.ROLE_USER) for one in kept],
        artifacts=[_artifact(one.id, [pb.Part(text=one.text)]) for one in replies],
        status=pb.TaskStatus(state="TASK_STATE_WORKING"),
    )
    if conversation.run.head and conversation.at_rest:
        end = conversation.end()
        task.artifacts.extend(_outputs(end))
        task.status.CopyFrom(status_of(row.run_id, end))
    task.status.timestamp.FromMilliseconds(int(row.updated * 1000))
    return task


def status_of(run_id: str, end: c.TurnEnded) -> pb.TaskStatus:
    """Return the status of a run that rests. Questions are in its message, as text and as data."""
    status = pb.TaskStatus(state=STATES[end.status])
    parts = []
    if end.error:
        parts.append(pb.Part(text=end.error))
    for question in end.questions:
        call = parts_of(question.kind, question.payload).call
        shown = f"{question.prompt}\n{json.dumps(call['args'])}" if "args" in call else question.prompt
        parts.append(pb.Part(text=redact(shown) if end.awaits_message else shown))
        if not end.awaits_message:
            parts.append(_data({"question": interrupt_id(question), **described(question)}))
    if parts:
        status.message.CopyFrom(_message(f"{run_id}.status", parts, pb.Role.ROLE_AGENT))
    return status


def _outputs(end: c.TurnEnded) -> Iterator[pb.Artifact]:
    """Yield the output of a run, unless it is a text, which is a reply."""
    if end.output is not None and not isinstance(end.output, str):
        yield _artifact("output", [_data(end.output)])


def _data(value: Any) -> pb.Part:
    part = pb.Part(media_type="application/json")
    ParseDict(value, part.data)
    return part


def _artifact(name: str, parts: list[pb.Part]) -> pb.Artifact:
    return pb.Artifact(artifact_id=name, name="output" if name == "output" else "reply", parts=parts)


def _message(name: str, parts: list[pb.Part], role: Any) -> pb.Message:
    return pb.Message(message_id=name, role=role, parts=parts)


@dataclass
class Encoder:
    """Encodes the parts of a turn."""

    task: str
    context: str
    begun: set[str] = field(default_factory=set)
    """The replies that the client has."""

    def responses(self, part: c.Part) -> Iterator[pb.StreamResponse]:
        """Yield the messages for a client about a part."""
        match part:
            case c.TextGrew(message, text, False):
                yield self._artifact(_artifact(message, [pb.Part(text=text)]), append=message in self.begun)
                self.begun.add(message)
            case c.TextEnded(message, False):
                yield self._artifact(_artifact(message, [pb.Part(text="")]), append=True, last=True)
            case c.TextWithdrawn(message, False):
                self.begun.discard(message)
                yield self._artifact(_artifact(message, [pb.Part(text="")]), append=False)
            case c.TurnEnded():
                for artifact in _outputs(part):
                    yield self._artifact(artifact, append=False, last=True)
                update = pb.TaskStatusUpdateEvent(
                    task_id=self.task, context_id=self.context, status=status_of(self.task, part)
                )
                update.status.timestamp.GetCurrentTime()
                yield pb.StreamResponse(status_update=update)
            case _:
                pass

    def _artifact(self, artifact: pb.Artifact, *, append: bool, last: bool = False) -> pb.StreamResponse:
        update = pb.TaskArtifactUpdateEvent(
            task_id=self.task, context_id=self.context, artifact=artifact, append=append, last_chunk=last
        )
        return pb.StreamResponse(artifact_update=update)
