"""The example application of the pages about protocols, as a user serves it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.ports import free_port
from tests.support.programs import Begun

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Example:
    """Processes of the example, one after the other, with one store."""

    def __init__(self, place: Path) -> None:
        self._place, self._port = place, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: Begun | None = None

    def begin(self) -> None:
        """Start a process and wait until it answers."""
        words = [
            "protocols:app",
            "--app-dir",
            DOCS / "examples",
            "--port",
            self._port,
            "--timeout-graceful-shutdown",
            1,
        ]
        with open(os.devnull) as nothing, (self._place / "log").open("ab") as log:
            self._process = Begun(
                words, module="uvicorn", streams=(nothing.fileno(), log.fileno(), log.fileno()),
                cwd=self._place, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            assert not self._process.ended, (self._place / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, and wait until the process has ended."""
        assert self._process is not None
        self._process.signal(number)
        self._process.wait()

    def close(self) -> None:
        """End the process, however it stands."""
        if self._process is not None:
            self._process.close()


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    found = Example(tmp_path)
    try:
        found.begin()
        yield found
    finally:
        found.close()


def test_a_user_answers_after_the_server_was_killed(example: Example) -> None:
    body = {"threadId": "t", "runId": "1", "messages": [{"id": "m", "role": "user", "content": "ann hello"}]}
    with httpx2.Client(timeout=60) as client:
        asked = _events(client.post(f"{example.url}/agui/", json=body))[-1]["outcome"]["interrupts"][0]
        example.end()
        example.begin()
        answer = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        events = _events(client.post(f"{example.url}/agui/", json={**body, "runId": "2", "resume": answer}))
    assert [one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT"] == ["sent to ann: hello"]
    assert (
        "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT") == "Done: sent to ann: hello"
    )


def test_a_chat_of_the_ai_sdk_reaches_the_same_agent(example: Example) -> None:
    said = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "ann hello"}]}
    body = {"id": "c", "messages": [said], "trigger": "submit-message"}
    with httpx2.Client(timeout=60, follow_redirects=True) as client:
        asked = _events(client.post(f"{example.url}/chat", json=body))[-3]
        assert asked["type"] == "tool-approval-request"
        answers = [{"id": asked["approvalId"], "payload": {"approved": True}}]
        events = _events(client.post(f"{example.url}/chat", json={**body, "answers": answers}))
    assert [one["output"] for one in events if one["type"] == "tool-output-available"] == ["sent to ann: hello"]


def test_agents_reach_it_by_a2a(example: Example) -> None:
    with httpx2.Client(timeout=60) as client:
        card = client.get(f"{example.url}/a2a/.well-known/agent-card.json").json()
        assert (card["name"], card["capabilities"]) == ("mail", {"streaming": True, "pushNotifications": False})
        said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "ann hello"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
        found = client.post(f"{example.url}/a2a/", json=body, headers={"A2A-Version": "1.0"}).json()
    assert found["result"]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def _events(response: httpx2.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("page", ["a2a", "agui", "ui_stream"])
def test_a_page_begins_with_a_short_program(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    program = re.search(r"```python\n(.*?)```", text, re.S)
    assert program is not None
    assert len(program[1].splitlines()) < 20
    assert text.count("\n", 0, program.start()) < 12
    compile(program[1], page, "exec")
