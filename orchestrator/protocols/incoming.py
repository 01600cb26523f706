"""What clients of protocols may do to a run. The rules are the same at every door.

- The journal is the history. Of the messages that a client posts, only the newest one is taken, if it is the user's:
  it starts a run, or answers the question of a run that waits for a message. All others must be as in the journal.
- Answers name a question and its digest: an answer to a question that has changed, that was answered, or that another
  run asked, is refused.
- The state is the run's. A client can set the input fields of a run that it starts, and nothing else.
- A thread is a label of runs, or a run with those that follow it; with `authorize`, threads of different users are
  different threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InvalidValue, RunUnknown
from orchestrator.executor.run_status import with_status
from orchestrator.executor.start import check_run_id
from orchestrator.kernel.question import Approve, Deny, Question, parts_of
from orchestrator.kernel.status import FINAL
from orchestrator.protocols.conversation import MESSAGE, Conversation, Message
from orchestrator.protocols.turns import Reading
from orchestrator.redaction import redact, redacted
from orchestrator.stores.base import RunInfo
from orchestrator.tasks import away
from orchestrator.values import MAX_LABEL
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

    from orchestrator.protocols.door import Door

THREAD = "thread"
"""Label of runs that clients start: the client's name of the conversation."""
USER = "user"
"""Label of these runs, if the server has `authorize`: the name of the principal."""
_RUNS = 100
"""Runs of a thread that are read, the newest ones. Forks among them are left out."""


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A message that a client posts, in the terms of no protocol."""

    id: str
    role: str
    text: str | None
    """None: the client does not say what the text is."""
    calls: Sequence[tuple[str, str, object]] = ()
    """Id, tool and arguments of each call."""
    call: str = ""
    """The call that a `tool` message answers."""


@dataclass(frozen=True, slots=True)
class PostedAnswer:
    """An answer that a client posts."""

    id: str
    """The question and its digest, see `interrupt_id`."""
    payload: object = None
    cancelled: bool = False
    """True if the client gives the question up."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A request to a thread."""

    thread: str
    messages: Sequence[PostedMessage] = ()
    answers: Sequence[PostedAnswer] = ()
    state: Mapping[str, object] | None = None
    seen: int | None = None
    """The last record that the client has read: it only reads on, and posts nothing."""


@dataclass(frozen=True, slots=True)
class Thread:
    """The runs of a thread."""

    rows: Sequence[RunInfo]
    """The oldest first."""
    whole: bool
    """False if there are earlier runs, which are not read."""

    @property
    def newest(self) -> RunInfo | None:
        """The run that is continued, if there is one."""
        return self.rows[-1] if self.rows else None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a request did."""

    run_id: str
    reading: Reading
    """The run, read up to the record after which the client reads on."""
    least: int
    """The record before which its turn does not end."""
    before: Conversation | None
    """The conversation before the request; None: the thread is new."""
    new: bool
    """True if the request began a turn; False if it only reads on."""


def interrupt_id(question: Question) -> str:
    """Return the id of a question for clients, which binds an answer to what was shown."""
    return f"{question.id}:{question.digest}"


def described(question: Question) -> dict[str, Any]:
    """Return what a question shows, for clients that know no form of its kind."""
    about = parts_of(question.kind, question.payload)
    return {
        "kind": question.kind,
        "node": question.node,
        "prompt": question.prompt,
        "choices": [*question.choices],
        "schema": answer_schema(question),
        "deadline": question.deadline,
        "call": dict(about.call),
        "shown": dict(about.shown),
    }


def answer_schema(question: Question) -> dict[str, Any] | None:
    """Return the JSON Schema of the payload that answers a question; None: anything."""
    if question.kind == "approval":
        return {
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"},
                "editedArgs": {"type": "object", "description": "Arguments to call the tool with instead."},
                "reason": {"type": "string", "description": "Why it is denied."},
            },
            "required": ["approved"],
            "additionalProperties": False,
        }
    if question.kind == "pause":
        return {}
    if question.choices:
        return {"type": "string", "enum": [*question.choices]}
    return question.schema


async def take(door: Door, request: Request, posted: Posted) -> Taken:
    """Do what a request asks for.

    Raises:
        HttpProblem, OrchestratorError: the request is refused; the run is unchanged.
    """
    _check_name("the thread", posted.thread)
    thread = await find_thread(door, request, posted.thread)
    row = thread.newest
    if row is None:
        return await _begun(door, request, posted)
    reading = await read_thread(door, request, thread, "stream_events")
    conversation, texts = reading.conversation, [one.text for one in posted.messages]
    await away(lambda: check_history(conversation, posted.messages, whole=thread.whole), texts)
    message = newest(conversation, posted.messages)
    if posted.answers and message is not None:
        raise HttpProblem(409, "answer-or-message", "post either answers or a new message, not both")
    if posted.seen is not None or (message is None and not posted.answers):
        return await _rejoined(row, reading, posted.seen)
    if posted.answers:
        return await answer(door, request, row, reading, conversation, posted.answers)
    assert message is not None
    if row.status in FINAL:
        return await _started(door, request, posted, message, row, conversation)
    check_state(posted.state, conversation.state, ())
    return await tell(door, request, row, reading, conversation, message)


async def _begun(door: Door, request: Request, posted: Posted) -> Taken:
    """Begin a thread."""
    check_history(None, posted.messages)
    message = newest(None, posted.messages)
    if message is None or posted.answers or posted.seen is not None:
        raise HttpProblem(404, "thread-unknown", "there is no such thread, and no message that would begin it")
    return await _started(door, request, posted, message, None, None)


async def find_thread(door: Door, request: Request, thread: str) -> Thread:
    """Return a thread.

    Args:
        door: the door.
        request: the request; with `authorize`, runs of other principals that clients started are not in the thread.
        thread: the id of a run of the graph, with which the thread begins, or the label of runs that clients started.

    Raises:
        HttpProblem: the client may not list runs.
    """
    user = await door.permit(request, "list_runs", None)
    graph, labels = door.offer.graph.name, {THREAD: thread, **({USER: user} if user else {})}
    page = await door.executor.runs(graph=graph, labels=labels, replays=False, limit=_RUNS)
    rows = [one for one in reversed(page.runs) if one.parent is None and one.run_id != thread]
    if page.cursor is not None:
        return Thread(rows, whole=False)
    with suppress(RunUnknown, InvalidValue):
        info = with_status(await door.executor.store.info(check_run_id(thread)))
        if info.graph == graph:
            rows.insert(0, info)
    return Thread(rows, whole=True)


async def read_thread(door: Door, request: Request, thread: Thread, action: str) -> Reading:
    """Read a thread that has runs. Return the reading of the newest one: its conversation has the earlier ones, too.

    Args:
        door: the door.
        request: the request.
        thread: the thread.
        action: what the client must be permitted to do with each of its runs.

    Raises:
        HttpProblem, RunUnknown: it is not.
    """
    earlier = None
    *before, newest = thread.rows
    for row in before:
        await door.permit(request, action, row)
        earlier = await door.reading(row.run_id, earlier).read()
    await door.permit(request, action, newest)
    reading = door.reading(newest.run_id, earlier)
    await reading.read()
    return reading


# -- what must be as in the journal --------------------------------------------------------------------------------


def newest(conversation: Conversation | None, messages: Sequence[PostedMessage]) -> PostedMessage | None:
    """Return the message to take: the last one, if it is the user's and not in the journal.

    Raises:
        HttpProblem: it has no text.
    """
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or (conversation is not None and last.id in conversation.messages):
        return None
    if last.text is None or not last.text.strip():
        raise HttpProblem(422, "message-empty", f"message {last.id!r} has no text: only text is taken")
    _check_name("the message", last.id)
    return last


def check_history(conversation: Conversation | None, messages: Sequence[PostedMessage], *, whole: bool = True) -> None:
    """Check that the posted messages are those of the journals.

    Messages of the user behind the last one that the journals have are not checked: they were posted and refused. A
    message may end early, because its client stopped reading.

    Args:
        conversation: the conversation of all runs that were read; None: the thread is new.
        messages: the posted messages.
        whole: False if there are earlier runs: then messages before the first one of `conversation` are not checked.

    Raises:
        HttpProblem: a message is not in the journals, or differs.
    """
    known = {} if conversation is None else conversation.messages
    calls = {} if conversation is None else conversation.calls
    holders = {call.call: one for one in known.values() for call in one.calls}
    places = [at for at, one in enumerate(messages) if one.id in known]
    first, last = (places[0], places[-1]) if places else (len(messages), -1)
    for at, posted in enumerate(messages):
        if at < first and not whole:
            continue
        found = known.get(posted.id)
        if posted.role not in ("user", "assistant", "reasoning", "tool"):
            raise _rewritten(posted, f"a client cannot give messages of the role {posted.role!r}")
        if posted.role == "tool":
            found = known.get(f"{posted.call}.result")
        elif found is None and posted.calls:
            found = holders.get(posted.calls[0][0])
        if found is None and posted.role == "user" and at > last:
            continue
        if found is None:
            raise _rewritten(posted, "the journal has no such message")
        if found.role != posted.role:
            raise _rewritten(posted, f"it is a message of the role {found.role!r}")
        if not _same_text(found, posted):
            raise _rewritten(posted, "its text is not what the journal has")
        for call, tool, args in posted.calls:
            made = calls.get(call)
            if made is None or made.part.tool != tool or redacted(args) not in (made.part.args, made.shown):
                raise _rewritten(posted, f"the journal has no such call {call!r} of {tool!r}")


def _same_text(found: Message, posted: PostedMessage) -> bool:
    if posted.text is None or not found.complete:
        return True
    given = redact(posted.text)
    return given == found.text or (found.role in ("assistant", "reasoning") and found.text.startswith(given))


def _rewritten(posted: PostedMessage, why: str) -> HttpProblem:
    detail = f"message {posted.id!r}: {why}. The journal is the history: post the messages as they were received"
    return HttpProblem(409, "history-refused", detail)


def check_state(given: Mapping[str, object] | None, known: Mapping[str, Any], free: Iterable[str]) -> dict[str, object]:
    """Check the posted state. Return the fields of the input in it.

    Args:
        given: the posted state.
        known: the fields that the client was shown.
        free: the fields that it may set.

    Raises:
        HttpProblem: it sets another field.
    """
    names = {*free}
    found = {name: value for name, value in (given or {}).items() if name in names}
    for name, value in (given or {}).items():
        if name not in names and (name not in known or redacted(value) != known[name]):
            may = f"only {', '.join(sorted(names))}" if names else "nothing"
            detail = f"state: {name!r} is not as the run has it, and a client can set {may}: leave it out"
            raise HttpProblem(409, "state-refused", detail)
    return found


def _check_name(what: str, name: str) -> None:
    if not name or len(name) > MAX_LABEL or not name.isprintable():
        raise HttpProblem(422, "invalid-id", f"the id of {what}: use 1 to {MAX_LABEL:,} printable characters")


# -- what a request does -------------------------------------------------------------------------------------------


async def _rejoined(row: RunInfo, reading: Reading, seen: int | None) -> Taken:
    """Read on, from the last record that the client has, or from the beginning of the current turn."""
    conversation = reading.conversation
    head = conversation.run.head
    begin = conversation.turn if seen is None else min(max(seen, 0), head)
    await reading.read(begin)
    return Taken(row.run_id, reading, head, conversation, new=False)


async def _started(
    door: Door,
    request: Request,
    posted: Posted,
    message: PostedMessage,
    row: RunInfo | None,
    conversation: Conversation | None,
) -> Taken:
    known = {} if conversation is None else conversation.state
    free = [name for name in door.offer.graph.input_fields if name != door.offer.input]
    others = check_state(posted.state, known, free)
    # Two clients that begin the same thread at the same time choose the same id: one of them starts the run.
    seed = "" if row is None else row.run_id
    return await start(door, request, posted.thread, message, seed, others, conversation)


async def start(
    door: Door,
    request: Request,
    thread: str,
    message: PostedMessage,
    seed: str,
    others: Mapping[str, object],
    earlier: Conversation | None = None,
) -> Taken:
    """Start a run with a message.

    Args:
        door: the door.
        request: the request.
        thread: the name of the conversation; empty: the id of the run.
        message: the message.
        seed: what distinguishes the run from others of the thread. The same request starts the same run.
        others: further fields of the input.
        earlier: the conversation of the earlier runs of the thread, if clients are shown that, too.

    Raises:
        HttpProblem, OrchestratorError: it is refused.
    """
    offer, labels = door.offer, {THREAD: thread, MESSAGE: message.id}
    by = await door.permit(request, "start_run", RunInfo("", offer.graph.name, "running", labels))
    if by:
        labels[USER] = by
    run_id = sha256(json.dumps([offer.graph.name, thread, by, seed]).encode()).hexdigest()[:16]
    labels[THREAD] = thread or run_id
    given = {offer.input: message.text, **others}
    await door.executor.submit(offer.graph, given, run_id=run_id, labels=labels, by=by)
    reading = door.reading(run_id, earlier)
    await reading.read(0)
    return Taken(run_id, reading, 1, None, new=True)


async def tell(
    door: Door, request: Request, row: RunInfo, reading: Reading, conversation: Conversation, message: PostedMessage
) -> Taken:
    """Give a message to a run that waits for one, or whose node takes messages at any time.

    Args:
        door: the door.
        request: the request.
        row: the row of the run.
        reading: the run, read to its end.
        conversation: the same.
        message: the message.

    Raises:
        HttpProblem, OrchestratorError: it is refused.
    """
    executor, end = door.executor, conversation.end() if conversation.at_rest else None
    if end is not None and end.awaits_message:
        (question,) = end.questions
        await door.permit_answer(request, row, question)
        by = await door.permit(request, "answer_question", row)
        if question.path:
            run = await executor.answer(
                row.run_id, question.id, message.text, by=by, digest=question.digest, background=True
            )
        else:
            run = await executor.send(row.run_id, question.node, message.text, id=message.id, by=by, background=True)
        return Taken(row.run_id, reading, run.seq, conversation, new=True)
    graph = door.offer.graph
    names = [name for name, one in graph.nodes.items() if getattr(one, "on_busy", "reject") != "reject"]
    if len(names) != 1:
        wait = "answer its questions first" if end is not None else "wait until it has replied"
        raise HttpProblem(409, "run-busy", f"run {row.run_id!r} takes no message now: {wait}")
    by = await door.permit(request, "send_event", row)
    run = await executor.send(row.run_id, names[0], message.text, id=message.id, by=by, background=True)
    return Taken(row.run_id, reading, run.seq, conversation, new=True)


async def answer(
    door: Door,
    request: Request,
    row: RunInfo,
    reading: Reading,
    conversation: Conversation,
    answers: Sequence[PostedAnswer],
) -> Taken:
    """Answer questions of a run. All are checked before the first one is answered.

    Args:
        door: the door.
        request: the request.
        row: the row of the run.
        reading: the run, read to its end.
        conversation: the same.
        answers: the answers.

    Raises:
        HttpProblem, OrchestratorError: one is refused.
    """
    asked = {one.id: one for one in conversation.questions}
    pairs = []
    for given in answers:
        name, _, digest = given.id.rpartition(":")
        question = asked.get(name)
        if question is None:
            raise HttpProblem(409, "question-closed", f"run {row.run_id!r} does not ask {given.id!r} now")
        if digest != question.digest:
            raise HttpProblem(
                409, "question-changed", f"the question is not {given.id!r}: show it again, then answer it"
            )
        await door.permit_answer(request, row, question)
        pairs.append((question, answer_of(question, given)))
    if len({question.id for question, _ in pairs}) < len(pairs):
        raise HttpProblem(422, "answered-twice", "one of the questions is answered twice")
    by, seq = await door.permit(request, "answer_question", row), 0
    for question, given_answer in pairs:
        if question.kind == "pause":
            run = await door.executor.resume(row.run_id, background=True, by=by)
        else:
            run = await door.executor.answer(
                row.run_id, question.id, given_answer, by=by, digest=question.digest, background=True
            )
        seq = max(seq, run.seq)
    return Taken(row.run_id, reading, seq, conversation, new=True)


def answer_of(question: Question, given: PostedAnswer) -> object:
    """Return the answer to a question, in the terms of the executor.

    Raises:
        HttpProblem: the payload does not fit.
    """
    payload = given.payload
    if given.cancelled and question.kind in ("approval", "input"):
        return Deny(reason="the user gave the question up")
    if given.cancelled:
        raise HttpProblem(422, "cannot-cancel", f"a question of the kind {question.kind!r} must be answered")
    if question.kind != "approval":
        return payload
    known = {"approved", "editedArgs", "reason"}
    if not isinstance(payload, Mapping) or not isinstance(payload.get("approved"), bool) or payload.keys() - known:
        detail = f"the payload for {given.id!r}: give an object with `approved`, and perhaps `editedArgs` or `reason`"
        raise HttpProblem(422, "invalid-payload", detail)
    args, reason = payload.get("editedArgs"), payload.get("reason", "")
    if not (args is None or isinstance(args, dict)) or not isinstance(reason, str):
        raise HttpProblem(
            422, "invalid-payload", f"the payload for {given.id!r}: editedArgs is an object, reason a text"
        )
    if not payload["approved"] and args is not None:
        raise HttpProblem(422, "invalid-payload", f"the payload for {given.id!r}: a denied call has no arguments")
    return Approve(args=args) if payload["approved"] else Deny(reason=reason)
