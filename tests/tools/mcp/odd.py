"""A server over stdio that says what it is told to: python odd.py FOLDER SAYS

SAYS is JSON: for a method, what the server does each time it is called, one item for each call, the last one for all
others; for `answer`, what it does when a request of its own was answered. An item is a list of lines: an object is sent
as the answer to the request, a text is written as it is ($ID is the id of the request), a number ends the process, null
closes the output. Without an entry, it answers as a server of 2025-06-18 with the tool `pay`. It notes each start and
each call as a line in FOLDER.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

PAY = {"name": "pay", "inputSchema": {"type": "object"}}
USUAL: dict[str, dict[str, Any]] = {
    "initialize": {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}}},
    "tools/list": {"result": {"tools": [PAY]}},
    "tools/call": {"result": {"content": [{"type": "text", "text": "paid"}]}},
}


def note(file: str, text: str) -> None:
    with (Path(sys.argv[1]) / file).open("a") as out:
        out.write(f"{text}\n")


def say(line: Any, number: Any) -> None:
    match line:
        case int():
            os._exit(line)
        case None:
            os.close(1)
            return
        case str():
            text = line.replace("$ID", json.dumps(number))
        case _:
            text = json.dumps({"jsonrpc": "2.0", "id": number, **line})
    os.write(1, text.encode("latin-1" if text.startswith("LATIN") else "utf-8").removeprefix(b"LATIN") + b"\n")


def main() -> None:
    says = json.loads(sys.argv[2])
    note("starts", str(os.getpid()))
    seen: Counter[str] = Counter()
    called = None
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "tools/call":
            note("calls", json.dumps(message["params"]))
        if number is not None and method is not None:
            called = number
        if str(method).startswith("tasks/"):
            note("tasks", json.dumps({"method": method, **message["params"]}))
        if number is not None and method is None:
            note("answers", json.dumps({name: message[name] for name in ("result", "error") if name in message}))
            for one in says.get("answer", [[]])[0]:
                say(one, called)
        if number is None or method is None:
            continue
        told = says.get(method)
        if told is None:
            told = [[USUAL.get(method, {"error": {"code": -32601, "message": "Method not found"}})]]
        for one in told[min(seen[method], len(told) - 1)]:
            say(one, number)
        seen[method] += 1


if __name__ == "__main__":
    main()
