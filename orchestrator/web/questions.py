"""The open questions of all runs: a list, a stream of changes, and the inbox, a screen with a card for each of them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import anyio
from starlette.responses import Response

from orchestrator.errors import RunUnknown, StoreCorrupt, StoreError
from orchestrator.executor import RunQuestion
from orchestrator.executor.run_status import with_status
from orchestrator.json import PIECE, in_pieces, is_small
from orchestrator.kernel.question import QuestionKind, parts_of
from orchestrator.redaction import redact
from orchestrator.render.terminal.texts import short
from orchestrator.tasks import away
from orchestrator.values import shown_labels
from orchestrator.views.call_questions import ApprovalContext, context_of, outcome_title
from orchestrator.visible import narrow
from orchestrator.web import documents, problems, requests, streams
from orchestrator.web.endpoint import Call, Surroundings
from orchestrator.web.screens import shell

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from orchestrator.views.call_questions import ApprovalContext


FOR_PEOPLE: tuple[QuestionKind, ...] = ("approval", "input", "unknown_outcome", "pause", "limit")
"""Kinds of questions that people answer."""
COUNTED = 99
"""Maximum number of open questions that are counted without being shown."""
_KEPT = 2000
"""Contexts of questions that are kept: a journal is long, and a question never changes."""
_STREAMED = 1000
"""Oldest questions whose changes a stream without `limit` has."""


async def listing(call: Call[requests.QuestionsQuery]) -> documents.QuestionPage | ASGIApp:
    """Return a page of open questions, the oldest first; or, if the client accepts a stream, these and all changes."""
    if streams.MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return await page_of(call)


async def page_of(call: Call[requests.QuestionsQuery]) -> documents.QuestionPage:
    """Return a page of open questions, the oldest first, whatever media type the client accepts."""
    found, cursor = await _page(call, call.query.after, call.query.limit)
    return documents.QuestionPage(questions=await _documents(call, found), cursor=cursor)


async def _page(
    call: Call[requests.QuestionsQuery], after: str | None, limit: int
) -> tuple[list[RunQuestion], str | None]:
    query = call.query
    try:
        page = await call.executor.questions(
            graph=query.graph,
            labels=documents.labels_of(query.label),
            kinds=query.kind or None,
            after=after,
            limit=limit,
        )
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise problems.fields_problem([{"field": "after", "message": str(error)}], "query") from None
    return [one for one in page.questions if await _shown(call, one)], page.cursor


async def _shown(call: Call[requests.QuestionsQuery], one: RunQuestion) -> bool:
    """Return True if the principal may see a question."""
    if call.settings.authorize is None:
        return True
    try:
        return await call.may_see(with_status(await call.executor.store.info(one.run_id)))
    except RunUnknown:  # it was deleted meanwhile
        return False


async def _documents(
    call: Call[requests.QuestionsQuery], found: Sequence[RunQuestion]
) -> list[documents.AskedDocument]:
    answerable = not call.settings.read_only
    return await away(
        lambda: [
            documents.AskedDocument(
                run_id=one.run_id,
                graph=one.graph,
                labels=documents.blank(shown_labels(one.labels)),
                asked=one.asked,
                question=documents.question_of(one.question, answerable=answerable),
            )
            for one in found
        ],
        found,
    )


async def _changes(call: Call[requests.QuestionsQuery]) -> AsyncIterator[str]:
    known: dict[tuple[str, str, str], RunQuestion] = {}
    ready = False
    watch = streams.StoreWatch(call.executor.store, call.settings)
    while True:
        await watch.wait()
        now = {(one.run_id, one.question.id, one.question.digest): one for one in await _all(call)}
        for key in known.keys() - now.keys():
            yield _text(documents.QuestionEvent(type="closed", run_id=key[0], question=key[1]))
        for key, one in now.items():
            if key not in known:
                (opened,) = await _documents(call, [one])
                event = documents.QuestionEvent(type="opened", run_id=key[0], question=key[1], opened=opened)
                yield await away(partial(_text, event), event)
        if not ready:
            yield _text(documents.QuestionEvent(type="ready"))
            ready = True
        known = now
        await anyio.sleep(call.settings.poll)


async def _all(call: Call[requests.QuestionsQuery]) -> list[RunQuestion]:
    query = call.query
    most = query.limit if "limit" in query.model_fields_set else _STREAMED
    found, cursor = await _page(call, query.after, min(most, 200))
    while cursor is not None and len(found) < most:
        more, cursor = await _page(call, cursor, min(most - len(found), 200))
        found += more
    return found


async def waiting_for_people(call: Call[Any, Any]) -> int:
    """Count the questions that wait for people; at most `COUNTED` + 1. For use in other requests, too."""
    query = requests.QuestionsQuery.model_validate({"kind": FOR_PEOPLE, "limit": COUNTED})
    found, cursor = await _page(replace(call, query=query), None, COUNTED)
    return len(found) + (cursor is not None)


async def open_questions(call: Call[Any, Any]) -> str:
    """Return the number of questions that wait for people, as text; empty: none."""
    return counted(await waiting_for_people(call))


def counted(count: int) -> str:
    """Return a number of questions as text; empty: none."""
    return f"{COUNTED}+" if count > COUNTED else str(count or "")


def _text(event: documents.QuestionEvent) -> str:
    return f"data: {''.join(documents.json_of(event))}\n\n"


_LONG = 60
"""Characters from which an argument has a block of its own."""
_TITLES = {
    "input": "A run asks",
    "pause": "Paused",
    "event": "Waits for an event",
    "timer": "Sleeps",
    "limit": "A limit is reached",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, or a field that a question shows."""

    name: str
    text: str
    long: bool


@dataclass(frozen=True, slots=True)
class Card:
    """A question in the inbox. Times are Unix seconds."""

    key: str
    run_id: str
    question: str
    digest: str
    seq: int
    kind: str
    title: str
    risk: str
    effect: str
    prompt: str
    led: str
    """Text of the model's reply that asked for the call."""
    input: str
    place: str
    asked: float
    deadline: float | None
    arguments: Sequence[Argument]
    facts: Sequence[Argument]
    """Other facts of the question about the call."""
    shown: Sequence[Argument]
    """Fields of the state that are shown next to the call."""
    source: Mapping[str, object]
    """Data of the form: `args`, each as JSON text, `schema`, `choices`, `outcomes`.

    JSON text, because JavaScript rounds large numbers.
    """

    def waits(self, now: float) -> str:
        """Return how long the question has waited, as text."""
        return shell.lasting(max(0.0, now - self.asked))

    def left(self, now: float) -> str:
        """Return how long it can still be answered, as text."""
        left = (self.deadline or now) - now
        return f"in {shell.lasting(left)}" if left > 0 else "now"


def card_of(asked: documents.AskedDocument, question_of_run: str, context: ApprovalContext) -> Card:
    """Return the card of an open question.

    Args:
        asked: the question, as the API lists it.
        question_of_run: the first line of the run's input.
        context: its context in the journal.
    """
    question = asked.question
    call, shown = parts_of(question.kind, question.payload)
    given = call.get("args")
    said = {"tool", "args", "risk", "effect", *(("why",) if question.outcomes else ())}  # the prompt gives the reason
    args = given if isinstance(given, Mapping) else {} if given is None else {"args": given}
    args = _in_order(args, context.schema)
    return Card(
        key=shell.key_of(f"{asked.run_id} {question.id}"),
        run_id=asked.run_id,
        question=question.id,
        digest=question.digest,
        seq=context.seq,
        kind=question.kind,
        title=narrow(_title(question.kind, call)),  # it is also shown in a notification
        risk=str(call.get("risk", "")),
        effect=str(call.get("effect", "")),
        prompt=question.prompt,
        led=short(redact(context.text), 4000),
        input=short(question_of_run, 160),
        place=" / ".join(part for part in (asked.graph, question.path, question.node) if part),
        asked=asked.asked,
        deadline=question.deadline,
        arguments=_listed(args),
        facts=_listed({name: value for name, value in call.items() if name not in said}),
        shown=_listed({name: value for name, value in shown.items() if value != question.prompt}),  # not twice
        source={
            "args": {str(name): _json(value) for name, value in args.items()},
            "schema": context.schema if question.kind == "approval" else question.schema_,
            "choices": question.choices,
            "outcomes": [asdict(one) for one in question.outcomes],
        },
    )


@dataclass(frozen=True, slots=True)
class InboxAddress:
    """Builds the URLs of the inbox and its pages; each keeps the filters of the current request."""

    root: str
    query: Sequence[tuple[str, str]]

    @property
    def oldest(self) -> str:
        """The URL of the oldest questions."""
        kept = self._kept()
        return f"{self.root}/inbox{'?' if kept else ''}{urlencode(kept)}"

    def page(self, cursor: str | None) -> str:
        """Return the URL of the questions after a cursor; empty without one."""
        return f"{self.root}/inbox?{urlencode([*self._kept(), ('after', cursor)])}" if cursor else ""

    def changes(self, query: requests.QuestionsQuery) -> str:
        """Return the path below `/api` of the stream of the same questions."""
        others = [pair for pair in self.query if pair[0] not in ("kind", "limit")]
        kinds = [("kind", kind) for kind in query.kind]
        return f"/questions?{urlencode([*others, *kinds, ('limit', str(query.limit))])}"

    def _kept(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.query if name != "after"]


def summary_of(shown: int, waiting: str, after: str | None) -> str:
    """Describe the number of open questions, and which of them are shown.

    Args:
        shown: number of cards.
        waiting: number of open questions, as text; empty: none.
        after: the cursor that they follow; None: they are the oldest.
    """
    if not waiting:
        return ""
    said = f"{waiting} {'question waits' if waiting == '1' else 'questions wait'}"
    if after is not None:
        return f"{said}; these are later ones"
    return f"{said}, the oldest first" if waiting == str(shown) else f"{said}; these are the {shown} oldest"


def _in_order(args: Mapping[str, object], parameters: Mapping[str, object] | None) -> Mapping[str, object]:
    """Return the arguments in the order in which the tool declares them."""
    declared = (parameters or {}).get("properties")
    names = [name for name in declared if name in args] if isinstance(declared, Mapping) else []
    return {name: args[name] for name in dict.fromkeys([*names, *args])}


def _title(kind: str, payload: Mapping[str, object]) -> str:
    tool = payload.get("tool")
    if kind == "unknown_outcome":
        return outcome_title(payload)
    return str(tool) if kind == "approval" and tool else _TITLES.get(kind, "Approval" if kind == "approval" else kind)


def _listed(fields: Mapping[str, object]) -> list[Argument]:
    return [_argument(str(name), value) for name, value in fields.items()]


def _argument(name: str, value: object) -> Argument:
    text = value if isinstance(value, str) else _json(value)
    return Argument(name, text, len(text) > _LONG or "\n" in text)  # in full: exactly what is shown is approved


def _json(value: object) -> str:
    if isinstance(value, dict | list) and is_small(value, PIECE):
        return json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(in_pieces(value))


async def screen(call: Call[requests.QuestionsQuery]) -> Response:
    """Show the open questions that people answer, the oldest first."""
    query = call.query.model_copy(update={"kind": list(call.query.kind) or list(FOR_PEOPLE)})
    found = await page_of(replace(call, query=query))
    cards = [await _card(call, one) for one in found.questions]
    whole = call.query.after is None and found.cursor is None
    waiting = str(len(cards) or "") if whole else await open_questions(call)
    address = InboxAddress(shell.root_of(call), call.request.query_params.multi_items())
    return await shell.page(
        call,
        "inbox",
        {
            "title": f"Inbox ({waiting})" if waiting else "Inbox",
            "cards": cards,
            "open_questions": waiting,
            "summary": summary_of(len(cards), waiting, call.query.after),
            "moment": time.time(),
            "later": address.page(found.cursor),
            "oldest": address.oldest if call.query.after else "",
            "changes": address.changes(query),
        },
        root=address.root,
        version=["inbox", waiting, found.cursor, [[card.run_id, card.question, card.digest] for card in cards]],
    )


async def run_questions(call: Call[requests.NoQuery]) -> Response:
    """Return the open questions of a run that people answer, as cards for insertion into the page of the run."""
    found = await call.executor.load(call.run_id)
    cards = []
    for question in await away(lambda: found.waiting, [*found.machine.questions.values()]):
        if question.kind in FOR_PEOPLE:
            shown = await away(
                partial(documents.question_of, question, answerable=not call.settings.read_only), question
            )
            labels = documents.blank(shown_labels(found.labels))
            one = documents.AskedDocument(run_id=call.run_id, graph=found.graph, labels=labels, asked=0, question=shown)
            said, context = await _surroundings(call, one)
            records = await call.executor.store.read(call.run_id, after=context.seq - 1, upto=context.seq)
            asked = one.model_copy(update={"asked": records[0].ts if records else time.time()})
            cards.append(await away(partial(card_of, asked, said, context), asked, context))
    waiting = await open_questions(call)
    return await shell.page(
        call,
        "run_questions",
        {"cards": cards, "open_questions": waiting, "moment": time.time()},
        root=shell.root_of(call),
        version=["questions", waiting, [[card.question, card.digest] for card in cards]],
    )


async def _card(call: Call[Any, Any], one: documents.AskedDocument) -> Card:
    said, context = await _surroundings(call, one)
    return await away(lambda: card_of(one, said, context), one, context)


async def _surroundings(call: Call[Any, Any], one: documents.AskedDocument) -> tuple[str, ApprovalContext]:
    """Return the first line of the run's input, and the context of the question in its journal."""
    kept, key = call.service.surroundings, (one.run_id, one.question.id)
    try:
        info = await call.executor.store.info(one.run_id)
        version = info.created, one.question.digest
        found = kept.get(key)
        if found is None or found.version != version:
            records = await call.executor.store.read(one.run_id, upto=info.head)
            about = parts_of(one.question.kind, one.question.payload).call
            context = await away(lambda: context_of(records, one.question.id, about))
            found = kept[key] = Surroundings(version, documents.first_line(info.input), context)
    except RunUnknown:
        call.service.forget(one.run_id)
        return "", ApprovalContext(0)
    except StoreCorrupt:
        return "", ApprovalContext(0)
    while len(kept) > _KEPT:
        kept.pop(next(iter(kept)))
    return found.input, found.context
