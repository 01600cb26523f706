"""Real replies are recorded once, and tests replay them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, cast

import anyio.lowlevel

from orchestrator.errors import ModelError
from orchestrator.json import digest
from orchestrator.models.base import ModelEvent, ModelRequest, closing
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware, jsonable
from orchestrator.models.middleware.tape import Entry, RecordedOutcome, Tape, error_data, error_from
from orchestrator.redaction import redact as redact_patterns
from orchestrator.redaction import redacted

CassetteMode: TypeAlias = Literal["auto", "record", "replay", "add"]
_MODES = ("auto", "record", "replay", "add")
_VARIABLE = "ORCHESTRATOR_CASSETTE"


class Cassette(Middleware):
    """Records the replies and errors of a model, and replays them without a request.

        with Cassette("tests/plan.json") as tape:
            run = await graph.run("Plan a walk.", model=with_middleware(OpenAIModel("gpt-4o-mini"), tape))

    A request gets the reply that was recorded for an equal request (its `data()` and its model's name); the second such
    request gets the second reply. A request that was not recorded fails with an `AssertionError` that shows the
    differences. As a context manager, the cassette fails at the end if a recorded reply was not used, and repeats such
    errors, so that a graph that survives them does not hide them.

    mode     does
    auto     `replay` if the file exists, else `record`; or what ORCHESTRATOR_CASSETTE says
    record   asks for everything, and creates the file anew
    replay   asks for nothing
    add      asks for what was not recorded, and adds it
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
            repeat: whether the last reply to a request serves all further equal requests.
            redact: applied to every text of requests and replies before they are compared or written.

        Raises:
            ValueError: the file is not a cassette.
        """
        self._tape = Tape(Path(path))
        self._mode: CassetteMode = _mode(mode, self._tape.path.exists())
        self._strict, self._repeat, self._redact = strict, repeat, redact
        self._faults: list[str] = []
        if self._mode == "replay" or (self._mode == "add" and self._tape.path.exists()):
            if not self._tape.path.exists():
                raise FileNotFoundError(f"{self._tape.path} is not there: record it with mode='record'")
            self._tape.load()

    def __repr__(self) -> str:
        return f"Cassette({str(self._tape.path)!r}, {self._mode!r})"

    @property
    def mode(self) -> CassetteMode:
        """What it does: `record`, `replay` or `add`."""
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
            AssertionError: names the requests.
        """
        unused = self._tape.unused() if self._strict and self._mode == "replay" else []
        faults = [*self._faults, *([f"recorded but not used: {', '.join(unused)}"] if unused else [])]
        if faults:
            raise AssertionError(f"{self._tape.path}: " + "; ".join(faults))

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        asked = self._plain(jsonable(ask.name, request))
        known = None if self._mode == "record" else self._recorded(asked)
        if known is None:
            async with closing(self._record(asked, request, ask)) as events:
                async for event in events:
                    yield event
            return
        await anyio.lowlevel.checkpoint()  # where a real model would let others run
        for piece in known.pieces if request.pieces else ():
            yield ModelEvent.model_validate(piece)
        if known.error is not None:
            raise error_from(known.error)
        if known.reply is None:
            raise self._fault("the recording ends here, because the reader of this reply stopped early", asked)
        yield ModelEvent(reply=Reply.model_validate(known.reply))

    def _recorded(self, asked: dict[str, Any]) -> RecordedOutcome | None:
        entry = self._tape.entries.get(digest(asked))
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
        raise self._fault(self._tape.nearest(asked), asked)

    async def _record(self, asked: dict[str, Any], request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        entry = self._tape.entries.setdefault(digest(asked), Entry(asked))
        # Its place is taken now: replies are given in the order of asking, whichever came first.
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
        self._tape.save()

    def _plain(self, data: dict[str, Any]) -> dict[str, Any]:
        return data if self._redact is None else cast("dict[str, Any]", redacted(data, self._redact))

    def _fault(self, why: str, asked: dict[str, Any]) -> AssertionError:
        messages = asked["request"]["messages"]
        last = repr(messages[-1].get("content", "")[:80]) if messages else "no messages"
        words = f"a request to model {asked['model']!r} is not recorded ({last}): {why}; to record: {_VARIABLE}=record"
        self._faults.append(words)
        return AssertionError(f"{self._tape.path}: {words}")


def _mode(mode: CassetteMode, there: bool) -> CassetteMode:
    said = os.environ.get(_VARIABLE, "auto") or "auto" if mode == "auto" else mode
    if said not in _MODES:
        raise ValueError(f"a cassette has no mode {said!r}; the modes are {', '.join(_MODES)}")
    found: str = said if said != "auto" else "replay" if there else "record"
    return cast("CassetteMode", found)
