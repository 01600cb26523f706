"""Saving a text as a file, see `saved`."""

from __future__ import annotations

from orchestrator.web.compose.documents import SavedDocument
from orchestrator.web.compose.requests import SaveBody
from orchestrator.web.compose.saved_files import SUFFIX
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import HttpProblem
from orchestrator.web.requests import NoQuery


async def save(call: Call[NoQuery, SaveBody]) -> SavedDocument:
    """Write a text into the folder of the server, and make its graph one of the server."""
    body, saved = call.body, call.service.saved
    if saved is None:
        detail = "this server saves no graphs: start it with --save-graphs DIR, or download the text"
        raise HttpProblem(409, "save-off", detail)
    await call.check_new(None, body.name, {})
    found = await call.service.texts.away(lambda: saved.save(body.name, body.text, body.replaces))
    saved.settle()
    return SavedDocument(name=body.name, digest=found.digest, file=f"{body.name}{SUFFIX}")
