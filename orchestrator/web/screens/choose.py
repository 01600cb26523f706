"""The page of a screen about several runs while none are named: it offers the newest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from orchestrator.web import requests, runs
from orchestrator.web.endpoint import Call
from orchestrator.web.questions import open_questions
from orchestrator.web.screens.shell import page, root_of

_OFFERED = 50


async def choose(call: Call[Any], title: str, screen: str, most: int, named: Sequence[str]) -> Response:
    """Show the newest runs as a form that leads back to a screen.

    Args:
        call: the request.
        title: the title of the page.
        screen: the path of the screen, which takes `runs`.
        most: how many runs it takes.
        named: the ids of runs that are named already.
    """
    query = requests.RunsQuery.model_validate({"limit": _OFFERED})
    newest = await runs.page_of(Call(call.service, call.request, call.action, query, None))
    shown = [one.run_id for one in newest.runs]
    data = {
        "screen": "problem",  # nothing of the page needs a script of its own
        "title": title,
        "to": screen,
        "most": most,
        "rows": newest.runs,
        "named": [*named],
        "others": [name for name in named if name not in shown],
        "open_questions": await open_questions(call),
    }
    version = ["choose", [*named], [row.model_dump(mode="json") for row in newest.runs], data["open_questions"]]
    return await page(call, "choose", data, root=root_of(call), version=version)
