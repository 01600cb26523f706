"""Logins to servers with OAuth: `orchestrator mcp login | logout | list`, and the tokens of connections."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from orchestrator.errors import ToolError
from orchestrator.tools.mcp import McpToolbox
from orchestrator.tools.mcp.oauth import Tokens, _callback, key_of, login_command

ROOT = Path(__file__).parents[3]
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's tokens."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "orchestrator"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """Starts a server whose tokens last this number of seconds."""
    started: list[subprocess.Popen[bytes]] = []

    def start(seconds: int) -> str:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        words = ("-m", "tests.tools.mcp.oauth_server", str(port), str(seconds), str(tmp_path / "notes"))
        started.append(subprocess.Popen((sys.executable, *words), cwd=ROOT))
        url = f"http://127.0.0.1:{port}/mcp"
        while True:
            assert started[-1].poll() is None
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    return url
            time.sleep(0.05)

    yield start
    for process in started:
        process.kill()
        process.wait()


def command(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command whose browser opens the page by itself."""
    (tmp_path / "browser.py").write_text(BROWSER)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": str(ROOT),
        "BROWSER": f"{sys.executable} {tmp_path / 'browser.py'} %s",
    }
    line = (sys.executable, "-m", "orchestrator", "mcp", *words)
    return subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


async def told(url: str) -> str:
    async with McpToolbox.http(url) as box:
        return str((await box.execute(name="tell", tool_input={})).output)


@pytest.mark.full
def test_a_login_is_kept_used_and_forgotten(tmp_path: Path, state: Path, secured: Callable[[int], str]) -> None:
    url = secured(3600)
    with pytest.raises(ToolError, match=f"HTTP 401.*To log in: {login_command(url)}"):
        anyio.run(told, url)
    done = command(tmp_path, "login", url)
    assert (done.returncode, done.stdout) == (0, f"logged in to {url}\n"), done.stderr
    assert f"open this address to log in to 127.0.0.1:{url.split(':')[2][:-4]}:" in done.stderr
    assert stat.S_IMODE((state / "mcp_tokens.json").stat().st_mode) == 0o600
    token = json.loads((state / "mcp_tokens.json").read_text())[url]["token"]["access_token"]

    said = anyio.run(told, url)
    assert said == "you sent [redacted]"  # a token that the server repeats is in no result
    listed = command(tmp_path, "list")
    assert url in listed.stdout
    assert "use" in listed.stdout
    assert token not in listed.stdout + done.stderr + command(tmp_path, "list", "--json").stdout

    assert command(tmp_path, "logout", url).returncode == 0
    assert (tmp_path / "notes").read_text().split() == ["code", "revoked"]
    gone = command(tmp_path, "logout", url)
    assert (gone.returncode, gone.stderr.strip()) == (4, f"error: not logged in to {url}")
    with pytest.raises(ToolError, match="To log in: orchestrator mcp login"):
        anyio.run(told, url)


USING = """
import sys, anyio
from orchestrator.tools.mcp import McpToolbox
async def main():
    async with McpToolbox.http(sys.argv[1]) as box:
        print((await box.execute(name="tell", tool_input={})).output)
anyio.run(main)
"""


@pytest.mark.full
def test_one_process_refreshes_for_all(tmp_path: Path, state: Path, secured: Callable[[int], str]) -> None:
    url = secured(3600)
    assert command(tmp_path, "login", url).returncode == 0
    file = state / "mcp_tokens.json"
    kept = json.loads(file.read_text())
    kept[url]["expires_at"] = 1.0  # its time is over
    file.write_text(json.dumps(kept))
    users = [
        subprocess.Popen((sys.executable, "-c", USING, url), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [one.communicate(timeout=120)[0] for one in users] == ["you sent [redacted]\n"] * 3
    assert (tmp_path / "notes").read_text().split() == ["code", "refresh"]  # a second one would have failed
    assert json.loads(file.read_text())[url]["token"] != kept[url]["token"]


@pytest.mark.full
def test_a_token_that_the_server_refuses_is_refreshed_once(
    tmp_path: Path, state: Path, secured: Callable[[int], str]
) -> None:
    url = secured(3600)
    assert command(tmp_path, "login", url).returncode == 0
    file = state / "mcp_tokens.json"
    kept = json.loads(file.read_text())
    kept[url]["token"]["access_token"] = "tok-unknown-to-the-server"
    file.write_text(json.dumps(kept))
    assert anyio.run(told, url) == "you sent [redacted]"
    kept = json.loads(file.read_text())
    kept[url]["token"] = {"access_token": "tok-unknown", "token_type": "Bearer", "refresh_token": "ref-unknown"}
    file.write_text(json.dumps(kept))
    with pytest.raises(ToolError, match=r"HTTP 401.*To log in: orchestrator mcp login"):
        anyio.run(told, url)


@pytest.mark.full
def test_a_login_that_fails_says_why(tmp_path: Path, secured: Callable[[int], str], address: str) -> None:
    url = secured(60)
    (tmp_path / "notes.deny").touch()
    denied = command(tmp_path, "login", url)
    assert (denied.returncode, "access_denied" in denied.stderr) == (1, True), denied.stderr
    assert "Traceback" not in denied.stderr
    for server, code, why in (
        (address, 1, "the server does not ask for a login"),
        ("http://127.0.0.1:9/mcp", 1, "it cannot be reached"),
        ("some command", 2, "name one server with an address"),
    ):
        done = command(tmp_path, "login", server)
        assert (done.returncode, why in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr
    assert command(tmp_path, "list").stdout == ""


@pytest.mark.anyio
async def test_connections_without_a_usable_request_do_not_end_a_login() -> None:
    """Browsers open connections ahead, and may close them unused or keep them open."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    found: list[object] = []

    async def wait() -> None:
        found.append(await _callback(listener))

    async with listener, await anyio.connect_tcp("127.0.0.1", port), anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for sent in (b"", b"GET /callback?code=no", b"GET http://[x HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n"):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                if sent:
                    await stream.send(sent)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:  # it is reset
            linger = struct.pack("ii", 1, 0)
            stream.extra(anyio.abc.SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET /favicon.ico HTTP/1.1\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 404")
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET /callback?code=c&state=s HTTP/1.1\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    assert [(one.code, one.state) for one in found] == [("c", "s")]  # type: ignore[attr-defined]


def test_a_file_of_tokens_that_others_can_read_is_refused(state: Path) -> None:
    state.mkdir(parents=True)
    file = state / "mcp_tokens.json"
    file.write_text("{}")
    file.chmod(0o644)
    with pytest.raises(ToolError, match="others can read it: chmod 600"):
        Tokens().read()
    file.chmod(0o600)
    assert Tokens().read() == {}
    file.write_text("{")
    with pytest.raises(ToolError, match="is damaged"):
        Tokens().read()


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://ann:secret@x.example:8443/mcp?key=secret#x", "https://x.example:8443/mcp"),
        ("HTTPS://X.example/mcp", "https://x.example/mcp"),
        ("http://[::1]:80/", "http://[::1]:80/"),
    ],
)
def test_the_address_of_a_login_has_no_secret(url: str, key: str) -> None:
    assert key_of(url) == key
