"""Problems of requests as `application/problem+json` (RFC 9457), for people at a page who type no commands."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from orchestrator import errors
from orchestrator.errors import DISTRIBUTION
from orchestrator.redaction import redact, redacted
from orchestrator.spelling import close_to

log = logging.getLogger("orchestrator.web")
MEDIA = "application/problem+json"
_NAMED = 50
"""Maximum number of invalid fields listed in a problem."""
_LONGEST = 2_000
"""Characters of the invalid fields in the detail of a problem; its `errors` has all that are listed."""
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
TITLES: Mapping[int, str] = {
    400: "The request has no valid host",
    401: "A token is needed",
    403: "Refused",
    404: "There is no such thing",
    405: "The address has other methods",
    408: "The body did not arrive in time",
    409: "It does not fit what the run is now",
    413: "The body is too long",
    415: "The body is not JSON",
    422: "The query or the body does not fit",
    500: "A fault of the server",
    503: "The server cannot answer this now",
}
"""Status -> the title of its problems, and their description in OpenAPI."""

STATUSES: tuple[tuple[type[errors.OrchestratorError], int], ...] = (
    (errors.RunUnknown, 404),
    (errors.QuestionUnknown, 404),
    (errors.GraphUnknown, 404),
    (errors.InvalidAnswer, 422),
    (errors.InvalidMigration, 422),
    (errors.GraphChanged, 409),
    (errors.RunFailed, 409),
    (errors.RunError, 409),
    (errors.StoreUnavailable, 503),
    (errors.EncryptionKeyMissing, 409),
    (errors.RunArchived, 409),
    (errors.StoreError, 500),
    (errors.MemoryFull, 409),
    (errors.OrchestratorError, 422),
)
"""Class of errors -> status. The first matching class counts."""


class HttpProblem(Exception):
    """Raised when a request cannot be fulfilled.

    Args:
        status: the HTTP status.
        name: the end of the problem's `type`.
        detail: what was wrong, and the fix.
        headers: further headers of the response.
        members: further members of the document.
    """

    def __init__(
        self, status: int, name: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: object
    ) -> None:
        self.status, self.name, self.detail = status, name, detail
        self.headers = dict(headers or {})
        self.members = members
        super().__init__(detail)

    def document(self) -> dict[str, object]:
        """Return the problem as plain JSON, with values that look like secrets redacted."""
        return {
            "type": f"urn:{DISTRIBUTION}:problem:{self.name}",
            "title": TITLES.get(self.status, "The request cannot be answered"),
            "status": self.status,
            "detail": redact(self.detail),
            **{name: redacted(value) for name, value in self.members.items()},
        }


def problem_of(error: errors.OrchestratorError) -> HttpProblem:
    """Return the problem for an error of the library."""
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    members: dict[str, object] = {}
    for name in ("run_id", "question", "status", "where", "seq"):
        value = getattr(error, name, None)
        if isinstance(value, str | int) and value != "":
            members["run_status" if name == "status" else name] = value
    if isinstance(error, errors.Ambiguous):
        members["run_ids"] = list(error.run_ids)
    if isinstance(error, errors.InvalidGraph):
        members["problems"] = [problem.message for problem in error.problems]
    if isinstance(error, errors.InvalidInput) and error.faults:
        members["errors"] = [
            {"field": f"input.{name}"[:200], "message": said[:_LONGEST]} for name, said in error.faults[:_NAMED]
        ]
    headers = {"Retry-After": "1"} if status == 503 else None
    name = _WORD.sub("-", type(error).__name__).lower()
    return HttpProblem(status, name, _words(error), headers=headers, **members)


_WAYS_ON = {
    "exhausted": "to continue it, retry it with higher limits",
    "failed": "to continue it, retry it",
    "cancelled": "to continue it, retry it",
}
"""How a run ended -> what a page and the API can do about it."""
_AT_SERVER = "where the server runs"


def _words(error: errors.OrchestratorError) -> str:
    """Return what was wrong, and the fix: on the page, in the API, or, if neither can, where the server runs."""
    match error:
        case errors.RunUnknown():
            return f"no run {error.run_id!r} in this store: the list of runs has the existing ones"
        case errors.QuestionUnknown():
            return f"run {error.run_id!r} has no question {error.question!r}: its page lists the open ones"
        case errors.RunEnded():
            way = _WAYS_ON.get(error.status, "start a new run, or fork this one at one of its records")
            return f"run {error.run_id!r} has ended ({error.status}); {error.why or way}"
        case errors.StoreCorrupt() if error.seq > 1:
            readable = f"/api/runs/{quote(error.run_id, safe='')}/state?at={error.seq - 1}"
            return f"{error.fault}; records before it are readable: {readable}; to continue, restore a copy"
        case errors.GraphChanged() if error.command:
            return error.with_command(f"{error.command}   # {_AT_SERVER}")
        case errors.InvalidValue():  # arguments are called as fields of bodies are
            return errors.message_of(error)
    said = error.typed or errors.message_of(error)
    return f"{said} ({_AT_SERVER})" if " --" in said else said


def invalid(error: ValidationError, what: str, model: type[BaseModel], given: object) -> HttpProblem:
    """Return the problem of a query or body that does not match its model: it lists the first invalid fields.

    Args:
        error: what pydantic found.
        what: `query` or `body`.
        model: the model that it does not match.
        given: the query or body.
    """
    faults = error.errors(include_url=False, include_input=False)
    by_field: dict[tuple[str, ...], list[str]] = {}
    for one in faults[: 4 * _NAMED]:  # each type of a union has a fault of its own
        if one["type"] != "none_required":
            by_field.setdefault(_field(one, given), []).append(_message(one, model, what))
    # Of a union, the type that the value was meant to have is the one with faults inside the value.
    inner = {field[:length] for field in by_field for length in range(1, len(field))}
    shown = [field for field in by_field if field not in inner][:_NAMED]
    found = [{"field": ".".join(field)[:200], "message": _either(by_field[field])} for field in shown]
    merged = sum(len(by_field[field]) for field in {*shown, *(inner & by_field.keys())})
    if len(by_field) > len(shown) + len(inner & by_field.keys()) or len(faults) > 4 * _NAMED:
        found.append({"field": "", "message": f"and {len(faults) - merged:,} more faults"})
    return fields_problem(found, what)


def _field(fault: Mapping[str, Any], given: object) -> tuple[str, ...]:
    """Return the path of a field in what was given. Pydantic puts names of types between, which are in no value."""
    found: list[str] = []
    for part in fault["loc"]:
        inside = part in given if isinstance(given, Mapping) else isinstance(given, list) and isinstance(part, int)
        if inside:
            given = given[part]  # type: ignore[index]
        if inside or (fault["type"] == "missing" and part is fault["loc"][-1]):
            found.append(str(part))
    return tuple(found)


def _either(messages: Sequence[str]) -> str:
    """Return the messages of one field, which are of the types that it may have, as one message."""
    begin = "give "
    if all(one.startswith(begin) for one in messages):
        return begin + " or ".join(dict.fromkeys(one.removeprefix(begin) for one in messages))
    return "; ".join(dict.fromkeys(messages))


_FIXES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "it is missing",
    "greater_than": lambda said: f"give more than {_number(said['gt'])}",
    "greater_than_equal": lambda said: f"give {_number(said['ge'])} or more",
    "less_than": lambda said: f"give less than {_number(said['lt'])}",
    "less_than_equal": lambda said: f"give {_number(said['le'])} at most",
    "literal_error": lambda said: f"give {said['expected']}",
    "enum": lambda said: f"give {said['expected']}",
    "string_too_long": lambda said: f"give {said['max_length']:,} characters at most",
    "string_too_short": lambda said: f"give {_counted(said['min_length'], 'character')} or more",
    "too_long": lambda said: f"give {said['max_length']:,} entries at most",
    "too_short": lambda said: f"give {_counted(said['min_length'], 'entry', 'entries')} or more",
    "string_pattern_mismatch": lambda said: f"it does not have the form {said['pattern']}",
    "value_error": lambda said: str(said["error"]),
    "finite_number": lambda _: "give a finite number",
    "timezone_aware": lambda _: "give a time with its time zone, such as 2026-11-29T12:00:00Z",
}
_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "a text", "list": "a list",
    "dict": "an object", "model": "an object", "date": "a day, such as 2026-11-29", "datetime": "a time in ISO 8601",
}  # fmt: skip
"""The beginning of a type of fault -> what is expected."""


_WRITTEN_OUT = 1e21
"""Larger bounds are shown with an exponent."""


def _number(bound: float) -> str:
    if abs(bound) >= _WRITTEN_OUT:
        return f"{bound:g}".replace("e+", "e")
    return f"{int(bound) if bound == int(bound) else bound:,}"


def _counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def _message(fault: Mapping[str, Any], model: type[BaseModel], what: str) -> str:
    """Return what is wrong with a field, and the fix."""
    kind, place = str(fault["type"]), fault["loc"]
    if place[-1:] == ("[key]",):
        return f"a name in it: {_message({**fault, 'loc': ()}, model, what)}"
    if kind == "extra_forbidden":
        known = [one.alias or name for name, one in model.model_fields.items()] if len(place) == 1 else []
        close = close_to(str(place[-1]), known)
        others = f"use {', '.join(known)}" if known else "leave it out"
        given = f"did you mean {close!r}?" if close else others
        return f"there is no such {'parameter' if what == 'query' else 'field'}: {given}"
    described = kind == "string_pattern_mismatch" or (kind == "missing" and len(place) == 1)
    field = model.model_fields.get(str(place[0])) if described and place else None
    about = "" if field is None or not field.description else f": {_began(field.description)}"
    if kind == "string_pattern_mismatch" and about:
        return f"it does not fit{about}"
    if kind in _FIXES:
        return f"{_FIXES[kind](fault.get('ctx', {}))}{about}"
    wanted = _KINDS.get(kind.partition("_")[0])
    return f"give {wanted}" if wanted is not None else str(fault["msg"])


def _began(text: str) -> str:
    """Return a sentence as the end of another one."""
    return text[0].lower() + text[1:].rstrip(".")


def fields_problem(found: Sequence[Mapping[str, str]], what: str) -> HttpProblem:
    """Return the problem of invalid fields.

    Args:
        found: `field` and `message` of each.
        what: `query` or `body`.
    """
    said = "; ".join(f"{one['field']}: {one['message']}" if one["field"] else one["message"] for one in found)
    cut = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
    return HttpProblem(422, f"invalid-{what}", f"the {what} does not fit: {cut}", errors=[*found])


def fault() -> HttpProblem:
    """Return the problem of an internal error. Called in its handler, so that the log has the traceback."""
    log.exception("a request failed")
    return HttpProblem(500, "internal-error", "the server failed to answer this request; its log says why")


def answer(problem: HttpProblem) -> Response:
    """Return the problem as a response."""
    return Response(json.dumps(problem.document()), problem.status, headers=problem.headers, media_type=MEDIA)
