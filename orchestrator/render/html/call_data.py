"""The calls of a run as data of a page. A message, and a list of tools that a model was offered, are there once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.graph.limits import Usage
from orchestrator.json import digest
from orchestrator.kernel.records import failed_result
from orchestrator.render.html.clean_data import clean
from orchestrator.views.calls import JournaledCall
from orchestrator.views.safe_text import told

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")
_LARGEST = 4_000_000
"""Characters of the largest picture that a page shows."""
_ALL = 24_000_000
"""Characters of all pictures of a page together; those behind it are not shown."""


class CallData:
    """Writes calls as plain JSON.

    Args:
        at: a moment in Unix seconds as milliseconds since the run's start.

    Attributes:
        messages: Digest -> message: each is there once, as in the journal.
        offers: Digest -> tools that a model was offered.
    """

    def __init__(self, at: Callable[[float], int]) -> None:
        self.messages: dict[str, object] = {}
        self.offers: dict[str, object] = {}
        self._at = at
        self._room = _ALL
        self._names: dict[str, str] = {}
        """Key of a call's record -> its name, for calls inside calls."""

    def write(self, call: JournaledCall) -> dict[str, Any]:
        """One call with its result."""
        asked, settled = call.intended, call.settled
        said: dict[str, Any] = {
            "kind": asked.kind,
            "name": told(asked.name, 120),
            "seq": asked.seq,
            "effect": asked.effect,
            "t": [self._at(call.started), None if call.ended is None else self._at(call.ended)],
        }
        self._names[asked.key] = said["name"]
        if asked.inside:
            said["inside"] = self._names.get(asked.inside, "a call")
        request = dict(asked.request)
        if asked.kind == "model":
            said["messages"] = [self._message(one) for one in _list(request.pop("messages", ()))]
            offered = _list(request.pop("tools", ()))
            if offered:
                name = digest(offered)[:12]
                self.offers.setdefault(name, clean(offered))
                said["offer"] = name
            said["options"] = clean({key: value for key, value in request.items() if value not in (None, {}, [])})
        else:
            said["args"] = clean(request.get("args", request))
        if settled is not None:
            said |= {"settled": settled.seq, "ok": settled.ok}
            if asked.kind == "tool" and settled.ok and failed_result(settled.result) is not None:
                said["failed"] = True
            if settled.result is not None:
                said["result"] = clean(settled.result)
                said["images"] = self._pictures(settled.result)
            if settled.error is not None:
                said["error"] = told(str(settled.error), 2000)
            if settled.tries != 1:
                said["tries"] = settled.tries
            if settled.unknown:
                said["unknown"] = True
            if settled.usage is not None:
                said["usage"] = usage_data(settled.usage)
        return {name: value for name, value in said.items() if value not in ("", [], {}, None)}

    def _pictures(self, result: object) -> list[str]:
        """The pictures of a tool's result, as addresses that hold them; what is only an address is not asked for."""
        content = _list(result.get("content")) if isinstance(result, Mapping) else ()
        urls = (part.get("url") for part in content if isinstance(part, Mapping))
        shown = []
        for url in urls:
            if isinstance(url, str) and len(url) <= min(_LARGEST, self._room) and _PICTURE.fullmatch(url):
                self._room -= len(url)
                shown.append(url)
        return shown

    def _message(self, message: object) -> str:
        if not isinstance(message, Mapping):
            return ""
        name = str(message.get("ref") or message.get("digest") or digest(dict(message)))[:12]
        if "ref" not in message:
            self.messages[name] = clean({key: value for key, value in message.items() if key != "digest" and value})
        return name


def usage_data(usage: Usage) -> dict[str, object]:
    """What was used, without zeros."""
    found = {"calls": usage.calls, "in": usage.input_tokens, "out": usage.output_tokens, "cost": usage.cost}
    if usage.estimated:
        found["estimated"] = True
    return {name: value for name, value in found.items() if value}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
