"""A recording of a run that moved to other versions of its graph, in the names of one of them."""

from __future__ import annotations

from orchestrator.executor.recording import Outside, RecordedCall, RecordedQuestion, Recording, is_node_itself
from orchestrator.jsontypes import digest
from orchestrator.kernel import records as r
from orchestrator.views.moved_names import MovedNames


def rename(recording: Recording, names: MovedNames) -> None:
    """Put everything where it is in the version. Within a place the journal's order holds."""
    calls = sorted(recording.all_calls(), key=lambda call: call.intended.seq)
    asked = sorted((one for some in recording.questions.values() for one in some), key=lambda one: one.seq)
    recording.calls, recording.questions = {}, {}
    for call in calls:
        call.intended = _intended(call, names)
        recording.calls.setdefault((call.intended.path, call.intended.node), []).append(call)
    for one in asked:
        recording.questions.setdefault(_place(one, names), []).append(one)
    recording.outside = [_outside(record, names) for record in recording.outside]


def _intended(call: RecordedCall, names: MovedNames) -> r.EffectIntended:
    before = call.intended
    path, node = names.place(before.seq, before.path, before.node)
    changed: dict[str, object] = {"path": path, "node": node}
    if is_node_itself(before.kind, before.name, before.node, before.request):
        changed |= {"name": node, "digest": digest({"kind": before.kind, "name": node, "request": {}})}
    return before.model_copy(update=changed)


def _place(one: RecordedQuestion, names: MovedNames) -> tuple[str, str]:
    return names.place(one.seq, one.question.path, one.question.node)


def _outside(record: Outside, names: MovedNames) -> Outside:
    if not isinstance(record, r.TimerFired):
        return record
    path, node = names.place(record.seq, record.path, record.node)
    return record.model_copy(update={"path": path, "node": node})
