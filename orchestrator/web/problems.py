"""Problems of requests as `application/problem+json` (RFC 9457), in the wording of the command line."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from pydantic import ValidationError
from starlette.responses import Response

from orchestrator import errors
from orchestrator.errors import DISTRIBUTION
from orchestrator.redaction import redact, redacted

log = logging.getLogger("orchestrator.web")
MEDIA = "application/problem+json"
_NAMED = 50
"""Maximum number of invalid fields listed in a problem."""
_WORD = re.compile(r"(?<!^)(?=[A-Z])")

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
            "title": HTTPStatus(self.status).phrase,
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
    headers = {"Retry-After": "1"} if status == 503 else None
    name = _WORD.sub("-", type(error).__name__).lower()
    return HttpProblem(status, name, error.typed or errors.message_of(error), headers=headers, **members)


def invalid(error: ValidationError, what: str) -> HttpProblem:
    """Return the problem of a query or body that does not match its model: it lists the first invalid fields."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    found = [{"field": ".".join(map(str, one["loc"]))[:200], "message": one["msg"]} for one in faults[:_NAMED]]
    if len(faults) > _NAMED:
        found.append({"field": "", "message": f"and {len(faults) - _NAMED:,} more faults"})
    return fields_problem(found, what)


def fields_problem(found: Sequence[Mapping[str, str]], what: str) -> HttpProblem:
    """Return the problem of invalid fields.

    Args:
        found: `field` and `message` of each.
        what: `query` or `body`.
    """
    said = "; ".join(f"{one['field']}: {one['message']}" if one["field"] else one["message"] for one in found)
    return HttpProblem(422, f"invalid-{what}", f"the {what} does not fit: {said}", errors=[*found])


def fault() -> HttpProblem:
    """Return the problem of an internal error. Called in its handler, so that the log has the traceback."""
    log.exception("a request failed")
    return HttpProblem(500, "internal-error", "the server failed to answer this request; its log says why")


def answer(problem: HttpProblem) -> Response:
    """Return the problem as a response."""
    return Response(json.dumps(problem.document()), problem.status, headers=problem.headers, media_type=MEDIA)
