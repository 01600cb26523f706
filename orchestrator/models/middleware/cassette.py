"""Records real replies, which tests then replay.

The file of a cassette contains requests and their outcomes, in the order of the requests.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, cast

import anyio.lowlevel

from orchestrator.errors import ModelError, message_of
from orchestrator.json import canonical, cleaned, digest
from orchestrator.models.base import ModelEvent, ModelRequest, closing
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware, jsonable, write_whole
from orchestrator.redaction import redact as redact_patterns
from orchestrator.redaction import redacted
from orchestrator.values import MAX_BYTES, read_bounded

CassetteMode: TypeAlias = Literal["auto", "record", "replay", "add"]
_MODES = ("auto", "record", "replay", "add")
_VARIABLE = "ORCHESTRATOR_CASSETTE"


class Cassette(Middleware):
    """Records the replies and errors of a model, and replays them without a request.

        with Cassette("tests/plan.json") as cassette:
            run = await graph.run("Plan a walk.", model=with_middleware(OpenAIModel("gpt-4o-mini"), cassette))

    A request gets the reply that was recorded for an equal request (its `data()` and its model's name); the second such
    request gets the second reply. A request that was not recorded fails with an `AssertionError` that shows the
    differences. As a context manager, the cassette fails at the end if a recorded reply was not used, and repeats such
    errors, so that a graph that survives them does not hide them.

    mode     does
    auto     `replay` if the file exists, else `record`; or the value of ORCHESTRATOR_CASSETTE
    record   makes all requests, and rewrites the file
    replay   makes no requests
    add      makes and adds the requests that were not recorded
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: CassetteMode = "auto",
        *,
        strict: bool = True,
        repeat: bool = False,
        redact: Callable[[str], str] | None = redact_patterns,
    ) -> None:
        """
        Args:
            path: a JSON file for version control.
            mode: see above.
            strict: whether the end of the context fails if a recorded reply was not used.
            repeat: whether the last reply to a request answers all further equal requests.
            redact: applied to every string of requests and replies before they are compared or written.

        Raises:
            ValueError: the file is not a cassette.
        """
        self._file = CassetteFile(Path(path))
        self._mode: CassetteMode = _mode(mode, self._file.path.exists())
        self._strict, self._repeat, self._redact = strict, repeat, redact
        self._faults: list[str] = []
        if self._mode == "replay" or (self._mode == "add" and self._file.path.exists()):
            if not self._file.path.exists():
                raise FileNotFoundError(f"{self._file.path} is not there: record it with mode='record'")
            self._file.load()

    def __repr__(self) -> str:
        return f"Cassette({str(self._file.path)!r}, {self._mode!r})"

    @property
    def mode(self) -> CassetteMode:
        """Return the mode: `record`, `replay` or `add`."""
        return self._mode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_done()

    def assert_done(self) -> None:
        """Fail if a request was not recorded or, with `strict`, if a recorded reply was not used.

        Raises:
            AssertionError: a request was not recorded or a reply not used; names the requests.
        """
        unused = self._file.unused() if self._strict and self._mode == "replay" else []
        faults = [*self._faults, *([f"recorded but not used: {', '.join(unused)}"] if unused else [])]
        if faults:
            raise AssertionError(f"{self._file.path}: " + "; ".join(faults))

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        asked = self._plain(jsonable(ask.name, request))
        known = None if self._mode == "record" else self._recorded(asked)
        if known is None:
            async with closing(self._record(asked, request, ask)) as events:
                async for event in events:
                    yield event
            return
        await anyio.lowlevel.checkpoint()  # a real model would let other tasks run here
        for piece in known.pieces if request.pieces else ():
            yield ModelEvent.model_validate(piece)
        if known.error is not None:
            raise error_from(known.error)
        if known.reply is None:
            raise self._fault("the recording ends here, because the reader of this reply stopped early", asked)
        yield ModelEvent(reply=Reply.model_validate(known.reply))

    def _recorded(self, asked: dict[str, Any]) -> RecordedOutcome | None:
        entry = self._file.entries.get(digest(asked))
        if entry is not None:
            if entry.used < len(entry.outcomes):
                entry.used += 1
                return entry.outcomes[entry.used - 1]
            if self._repeat and entry.outcomes:
                return entry.outcomes[-1]
        if self._mode == "add":
            return None
        if entry is not None:
            words = f"it was asked {len(entry.outcomes)} times in the recording, and now again"
            raise self._fault(f"{words}; set repeat=True to repeat the last reply", asked)
        raise self._fault(self._file.nearest(asked), asked)

    async def _record(self, asked: dict[str, Any], request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        entry = self._file.entries.setdefault(digest(asked), Entry(asked))
        # The entry is reserved now: replies are recorded in the order of the requests, whichever arrives first.
        place = len(entry.outcomes)
        entry.outcomes.append(None)
        entry.used += 1
        outcome = RecordedOutcome()
        try:
            async with closing(ask(request)) as events:
                async for event in events:
                    piece = event.model_dump(mode="json", exclude={"reply"}, exclude_defaults=True)
                    if piece:
                        outcome.pieces.append(piece)
                    if event.reply is not None:
                        outcome.reply = event.reply.data()
                    yield event
        except ModelError as error:
            outcome.error = error_data(error)
            raise
        except GeneratorExit:
            if not outcome.pieces:
                raise
            self._keep(entry, place, outcome)
            raise
        finally:
            if outcome.reply is not None or outcome.error is not None:
                self._keep(entry, place, outcome)

    def _keep(self, entry: Entry, place: int, outcome: RecordedOutcome) -> None:
        entry.outcomes[place] = RecordedOutcome(**self._plain(vars(outcome)))
        self._file.save()

    def _plain(self, data: dict[str, Any]) -> dict[str, Any]:
        return data if self._redact is None else cast("dict[str, Any]", redacted(data, self._redact))

    def _fault(self, why: str, asked: dict[str, Any]) -> AssertionError:
        messages = asked["request"]["messages"]
        last = repr(messages[-1].get("content", "")[:80]) if messages else "no messages"
        words = f"a request to model {asked['model']!r} is not recorded ({last}): {why}; to record: {_VARIABLE}=record"
        self._faults.append(words)
        return AssertionError(f"{self._file.path}: {words}")


def _mode(mode: CassetteMode, there: bool) -> CassetteMode:
    said = os.environ.get(_VARIABLE, "auto") or "auto" if mode == "auto" else mode
    if said not in _MODES:
        raise ValueError(f"a cassette has no mode {said!r}; the modes are {', '.join(_MODES)}")
    found: str = said if said != "auto" else "replay" if there else "record"
    return cast("CassetteMode", found)


VERSION = 1
MOST_BYTES = 2 * MAX_BYTES
"""Maximum number of bytes of a cassette file."""
_SHOWN = 60


@dataclass
class RecordedOutcome:
    """Outcome of one request. Without reply and error, its reader stopped after these pieces."""

    reply: dict[str, Any] | None = None
    pieces: list[dict[str, Any]] = field(default_factory=list)
    """The pieces as they arrived, if they were requested: `text` or `reasoning`."""
    error: dict[str, Any] | None = None


@dataclass
class Entry:
    """A request and the outcome of each time it was made; None while it is in progress."""

    asked: dict[str, Any]
    """The model's name and the request."""
    outcomes: list[RecordedOutcome | None] = field(default_factory=list)
    used: int = 0
    """Number of outcomes that were replayed."""


class CassetteFile:
    """Entries by request, in the order of first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            ValueError: it is not a cassette.
        """
        try:
            written = json.loads(read_bounded(self.path, MOST_BYTES))
            if written["version"] != VERSION:
                raise ValueError(f"its version is {written['version']!r}, not {VERSION}")
            for one in written["entries"]:
                asked = {"model": one["model"], "request": one["request"]}
                outcomes: list[RecordedOutcome | None] = [RecordedOutcome(**outcome) for outcome in one["outcomes"]]
                # The digest is not stored, so that a request may be edited by hand.
                self.entries.setdefault(digest(asked), Entry(asked)).outcomes.extend(outcomes)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            advice = "correct it, or record it again with ORCHESTRATOR_CASSETTE=record"
            raise ValueError(f"{self.path} is not a cassette ({type(error).__name__}: {error}); {advice}") from None

    def save(self) -> None:
        """Write the file atomically, with sorted keys, so that version control shows the changes."""
        entries = [
            {
                **entry.asked,
                "outcomes": [
                    {name: value for name, value in vars(outcome).items() if value not in (None, [])}
                    for outcome in entry.outcomes
                    if outcome is not None
                ],
            }
            for entry in self.entries.values()
            if any(entry.outcomes)
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = cleaned({"version": VERSION, "entries": entries})
        write_whole(self.path, json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n")

    def unused(self) -> list[str]:
        """Return a line for each request with outcomes that were not replayed."""
        return [
            f"{len(entry.outcomes) - entry.used} of {_last(entry.asked)}"
            for entry in self.entries.values()
            if entry.used < len(entry.outcomes)
        ]

    def nearest(self, asked: Mapping[str, object]) -> str:
        """Describe how this request differs from the most similar recorded one."""
        if not self.entries:
            return "nothing is recorded"
        text = canonical(asked)

        def likeness(entry: Entry) -> tuple[int, float]:
            found = sum(1 for _ in differences(entry.asked, asked))
            return -found, difflib.SequenceMatcher(None, canonical(entry.asked)[-2000:], text[-2000:]).quick_ratio()

        best = max(self.entries.values(), key=likeness)
        found = list(differences(best.asked, asked))
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        return f"the nearest recorded one, {_last(best.asked)}, differs in " + "; ".join(found[:3]) + more


def differences(old: object, new: object, place: str = "") -> Iterator[str]:
    """Yield the differences of two JSON values: `request.messages[1].content: recorded '...', asked '...'`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            at = f"{place}.{key}" if place else str(key)
            if key not in new:
                yield f"{at}: recorded {_shown(old[key])}, not asked"
            elif key not in old:
                yield f"{at}: asked {_shown(new[key])}, not recorded"
            else:
                yield from differences(old[key], new[key], at)
    elif isinstance(old, list) and isinstance(new, list):
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, f"{place}[{number}]")
        if len(old) != len(new):
            yield f"{place}: {len(old)} recorded, {len(new)} asked"
    elif isinstance(old, str) and isinstance(new, str) and old != new:
        # A long text is shown from shortly before the first difference.
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, same - 20)
        where = f" (from character {start})" if start else ""
        yield f"{place}{where}: recorded {_shown(old[start:])}, asked {_shown(new[start:])}"
    elif type(old) is not type(new) or old != new:
        yield f"{place}: recorded {_shown(old)}, asked {_shown(new)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _last(asked: Mapping[str, Any]) -> str:
    messages = asked["request"].get("messages") or [{}]
    return f"{messages[-1].get('role', 'no')} {_shown(messages[-1].get('content', ''))}"


# -- replies and errors as data --------------------------------------------------------------------------------------


def error_data(error: ModelError) -> dict[str, Any]:
    """Return an error as data: its class, its message, and those of its fields that are plain."""
    fields = {name: value for name, value in vars(error).items() if isinstance(value, bool | int | float | str | None)}
    return {"type": type(error).__name__, "message": message_of(error), **({"fields": fields} if fields else {})}


def error_from(data: Mapping[str, Any]) -> ModelError:
    """Restore the error; one of an unknown class becomes a plain `ModelError`."""
    kind = next((kind for kind in _kinds(ModelError) if kind.__name__ == data["type"]), ModelError)
    error = kind.__new__(kind, data["message"])
    error.args = (data["message"],)
    vars(error).update(data.get("fields", {}))  # as in copying: a class may have its own `__init__`
    return error


def _kinds(kind: type[ModelError]) -> Iterator[type[ModelError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
