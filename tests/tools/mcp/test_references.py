"""Servers named by text and by files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import GraphUnknown
from orchestrator.tools import tools_from_ref
from orchestrator.tools.mcp import HttpServer, McpToolbox, StdioServer
from orchestrator.tools.mcp.servers import MOST_BYTES, absolute, hidden, servers_in, servers_of

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def test_a_command() -> None:
    assert servers_of("mcp:npx -y 'a server' --x=1") == [StdioServer("npx", ("-y", "a server", "--x=1"))]
    assert servers_of("run it", "somewhere")[0] == StdioServer("run", ("it",), cwd="somewhere")


def test_variables_are_handed_on_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    (server,) = servers_of("mcp:TOKEN=${MY_TOKEN} serve ${MODE:-fast}")
    assert server == StdioServer("serve", ("fast",), {"TOKEN": TOKEN})
    assert TOKEN not in repr(server)
    (other,) = servers_of("https://x.example/mcp?key=${MY_TOKEN}")
    assert isinstance(other, HttpServer)
    assert other.url.endswith(TOKEN)
    assert TOKEN not in repr(other)
    assert (server.name, other.name) == ("serve", "x.example")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mcp:", "name a server"),
        ("mcp:TOKEN=abc serve", r"values of variables are not written in them: write TOKEN=\$\{TOKEN\}"),
        (f"mcp:serve --token {TOKEN}", "contains a secret"),
        ("mcp:https://user:hunter22@x.example/mcp", "contains a secret"),
        ("mcp:serve 'open", "cannot be split into words: No closing quotation"),
        ("mcp:A=${NOT_SET_1} serve", "the environment has no NOT_SET_1"),
        ("mcp:HOME=${HOME}", "it contains no command"),
        ("mcp:missing.json", "the file cannot be read: No such file"),
    ],
)
def test_a_reference_that_is_refused(text: str, fault: str) -> None:
    with pytest.raises(GraphUnknown, match=fault) as caught:
        tools_from_ref(text)
    assert TOKEN not in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("serve --api-key hunter22", "--api-key"), ("serve --api-key=hunter22", "--api-key"),
        ("serve --pw=hunter22", "--pw"), ("serve --pw hunter22", "--pw"), ("serve -k hunter22", "-k"),
        ("serve -khunter22xx", "-k"), ("serve --dbPassword hunter22", "--dbPassword"),
        ("docker run -e MY_TOKEN=hunter22 image", "MY_TOKEN"), ("sh -c 'serve --secret hunter22'", "--secret"),
        ("serve --token ${MY_TOKEN:-hunter22}", "--token"), ("serve --auth 'Bearer hunter22'", "--auth"),
        ("npx mcp-remote https://x.example/mcp?key=hunter22", "key="),
        ("https://x.example/mcp?api_key=hunter22", "key"), ("https://x.example/mcp?sig=${S:-hunter22}", "sig="),
        ("https://hunter22@x.example/mcp", "address"), ("serve -u ann:hunter22", "-u"), ("serve -uann:hunter22", "-u"),
        ("serve --user ann:hunter22", "--user"), ("serve --user=ann:hunter22", "--user"), ("serve -U :hunter22", "-U"),
        ("serve --username ${USER}:hunter22", "--username"), ("serve --userpwd ann:${P:-hunter22}", "--userpwd"),
        ("sh -c 'serve -u ann:hunter22'", "-u"), ("serve --login 'ann:hunter22 x'", "--login"),
        ("serve -u ann:${P}hunter22", "-u"), ("serve ann:hunter22@x.example/db", "address"),
        ("serve ann:hunter22@localhost:8080", "address"), ("serve ann:hunter22@10.0.0.1", "address"),
        ("serve -H 'X-Api-Key: hunter22'", "X-Api-Key"),
        ("serve --header 'Authorization: Token hunter22'", "Authorization"),
        ("HTTPS://x.example/mcp?key=hunter22", "key="), ("serve HTTPS://hunter22@x.example/mcp", "address"),
    ],
)  # fmt: skip
def test_a_secret_is_not_written_in_a_reference(text: str, holder: str) -> None:
    with pytest.raises(GraphUnknown, match=r"contains a secret.*write \$\{NAME\}") as caught:
        tools_from_ref(f"mcp:{text}")
    assert holder in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "serve --token-file /run/secrets/it --max-tokens 100 --keyboard de -v", "serve --token ${MY_TOKEN}",
        "serve -k --verbose", "serve --api-key=${env:MY_TOKEN}", "serve --auth 'Bearer ${MY_TOKEN}' --password",
        "https://x.example/mcp?key=${MY_TOKEN}&page=2", "https://${MY_TOKEN}@x.example/mcp", "sh -c 'serve -p 80'",
        "uv run --with key server.py", "serve -u ${MY_TOKEN}:${MY_TOKEN}", "docker run -u 1000:1000 image",
        "docker run --user node:node image", "serve -u localhost:8080", "serve -u https://x.example/", "serve -u ann",
        "serve -H 'Authorization: Bearer ${MY_TOKEN}' -H 'Accept: a/b'", "serve npm:tool@1.2.3 image:tag@sha256:00ff",
        "serve -v /a:/b -p 80:80 --user-agent a:b", "serve npm:@scope/tool@1.0",
    ],
)  # fmt: skip
def test_names_of_variables_and_files_are_no_secrets(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    assert servers_of(text)


def _file(folder: Path, servers: Any, key: str = "mcpServers") -> Path:
    path = folder / ".mcp.json"
    path.write_text(json.dumps({key: servers}))
    return path


def test_a_file_as_other_clients_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    path = _file(
        tmp_path,
        {
            "memory": {"command": "npx", "args": ["-y", "${PACKAGE:-server}"], "env": {"T": "${env:MY_TOKEN}", "N": 1}},
            "far": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}},
            "off": {"command": "x", "disabled": True},
            "also_off": {"command": "x", "enabled": False},
        },
    )
    memory = StdioServer("npx", ("-y", "server"), {"T": TOKEN, "N": "1"}, str(tmp_path), "memory")
    far = HttpServer("https://x.example/mcp", {"Authorization": f"Bearer {TOKEN}"}, "far")
    assert servers_in(path) == [memory, far]
    assert servers_of(f"{path}#far") == [far]
    assert TOKEN in far.secrets
    both = tools_from_ref(f"mcp:{path}")
    assert [repr(one) for one in both.connections] == [
        "McpToolbox('memory', not connected)",
        "McpToolbox('far', not connected)",
    ]
    assert McpToolbox.from_file(str(path), "far", risk="read").server == far
    assert servers_in(_file(tmp_path, {"a": {"command": "x"}}, "servers"))[0].name == "a"


NPX = StdioServer("npx", ("-y", "x"), {"K": TOKEN}, ".", "a")
FAR = HttpServer("https://x.example/mcp", {"Authorization": f"Bearer {TOKEN}"}, "a")
SENT = {"headers": {"Authorization": "Bearer ${MY_TOKEN}"}}
BARE = {"headers": {"Authorization": "Bearer {env:MY_TOKEN}"}}


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ({"mcpServers": {"a": {"serverUrl": "https://x.example/mcp", **SENT}}}, FAR),  # Windsurf
        ({"mcpServers": {"a": {"httpUrl": "https://x.example/mcp", **SENT}}, "mcp": {"allowed": ["a"]}}, FAR),  # Gemini
        (  # Copilot
            {
                "mcpServers": {
                    "a": {"type": "local", "command": "npx", "args": ["-y", "x"], "env": {"K": "${MY_TOKEN}"}}
                }
            },
            NPX,
        ),
        ({"mcp": {"a": {"type": "remote", "url": "https://x.example/mcp", "enabled": True, **BARE}}}, FAR),  # OpenCode
        (
            {"mcp": {"a": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "{env:MY_TOKEN}"}}}},
            NPX,
        ),
        ({"mcp": {"servers": {"a": {"url": "https://x.example/mcp", **SENT}}, "inputs": []}}, FAR),  # VS Code
        (  # Amazon Q
            {"mcpServers": {"a": {"command": "x", "args": None, "env": None, "disabled": None, "url": None}}},
            StdioServer("x", (), {}, ".", "a"),
        ),
    ],
)
def test_the_forms_of_other_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Any, server: StdioServer | HttpServer
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    path = tmp_path / "opencode.jsonc"
    path.write_text(json.dumps(text))
    if isinstance(server, StdioServer):
        server = replace(server, cwd=str(tmp_path))
    assert servers_of(f"mcp:{path}#a") == servers_in(path) == [server]


@pytest.mark.parametrize(
    ("servers", "fault"),
    [
        ({}, "lists no servers"),
        ([], "lists no servers"),
        ({"a": 1}, "#a: a server must be an object"),
        ({"a": {}}, "#a: a server must have 'command'"),
        ({"a": {"type": "sse", "url": "http://x"}}, "#a: the old SSE transport"),
        ({"a": {"url": "ftp://x"}}, "does not begin with http"),
        ({"a": {"command": "x", "args": "y"}}, "'args' is not a list of strings"),
        ({"a": {"command": ""}}, "'command' is not a string"),
        ({"a": {"command": []}}, "'command' is not a string"),
        ({"a": {"command": ["x"], "args": ["y"]}}, "'command' is not a string"),
        ({"a": {"command": ["x", 1]}}, "'args' is not a list of strings"),
        ({"a": {"httpUrl": "http://x", "url": "http://y"}}, "#a: it has both 'httpUrl' and 'url': leave one out"),
        ({"a": {"command": "x", "env": {"K": "${file:~/.key}"}}}, r"\$\{file:~/.key\} is filled in by editors"),
        ({"a": {"command": "x", "env": {"K": []}}}, "'env' is not an object of strings"),
        ({"a": {"command": "x", "env": {"K": "${NOT_SET_1}"}}}, "#a: 'env.K': the environment has no NOT_SET_1"),
        (
            {"a": {"url": "http://x", "headers": {"K": 1, "L": "${NOT_SET_1}"}}},
            "#a: 'headers.L': the environment has no",
        ),
        ({"a": {"command": "x", "disabled": "yes"}}, "#a: 'disabled' is neither true nor false"),
        ({"a": {"command": "x", "enabled": 0}}, "#a: 'enabled' is neither true nor false"),
        ({"a": {"command": "x", "disabled": True}}, "every server in it is disabled"),
        ({"a": {"command": "x", "enabled": False}}, "every server in it is disabled"),
        (
            {"a": {"url": "http://x", "headers": {"K": "${input:my-key}"}}},
            "#a: 'headers.K': no input 'my-key' is described",
        ),
        (
            {"a": {"command": "x", "args": ["${command:pick}"]}},
            r"#a: 'args': \$\{command:pick\} is filled in by editors",
        ),
        ({"a": {"command": "x", "cwd": "${config:root}"}}, r"#a: 'cwd': \$\{config:root\} is filled in by editors"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, servers: Any, fault: str) -> None:
    with pytest.raises(GraphUnknown, match=fault):
        servers_in(_file(tmp_path, servers))


VS_CODE = """{
    // written by an editor
    "inputs": [
        {"id": "key", "type": "promptString", "description": "The key", "password": true}, /* asked
        for */
        {"id": "mode", "type": "pickString", "options": ["fast", {"label": "Slow", "value": "slow"}]},
        {"id": "run", "type": "command", "command": "x"},
    ],
    "servers": {
        "far": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${input:key}"}},
        "near": {"type": "stdio", "command": "serve", "args": ["--mode", "${input:mode}", "${input:key}", "//,]"],
                 "cwd": "${workspaceFolder}/data", "sandbox": {}, "dev": {"watch": "*"}},
        "odd": {"command": "x", "args": ["${input:run}"], "enabled": false},
    },
}"""


def _of_vs_code(folder: Path) -> Path:
    (folder / ".vscode").mkdir()
    path = folder / ".vscode" / "mcp.json"
    path.write_text(VS_CODE)
    return path


def test_a_file_of_variables(tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv" / ".env").write_text("# Ours\nTOKEN='tok-123456'\nexport MODE=${HOME}\nKEPT=file\nEMPTY\n")
    entry = {"command": "x", "envFile": "${workspaceFolder}/srv/.env", "env": {"KEPT": "entry"}}
    (server,) = servers_in(_file(tmp_path, {"a": entry}))
    assert isinstance(server, StdioServer)
    assert server.env == {"TOKEN": "tok-123456", "MODE": "${HOME}", "KEPT": "entry"}
    assert "tok-123456" in hidden(server)
    (tmp_path / "out").symlink_to("/etc/passwd")
    for name, fault in (
        ("none.env", "cannot be read"),
        ("../x", "is not below"),
        ("/etc/passwd", "is not below"),
        ("out", "is not below"),
    ):
        with pytest.raises(GraphUnknown, match=f"#a: 'envFile': the file {fault}"):
            servers_in(_file(tmp_path, {"a": {"command": "x", "envFile": name}}))


def test_inputs_are_not_asked_for_without_a_terminal(tmp_path: Path) -> None:
    path = _of_vs_code(tmp_path)
    fault = r"#far: 'headers.Authorization': the input 'key' \(The key\) is asked for at a terminal, and there is none"
    with pytest.raises(GraphUnknown, match=fault):
        servers_of(f"{path}#far")
    with pytest.raises(GraphUnknown, match=r"#odd: 'args': the input 'run' .* is filled in by editors only"):
        servers_of(f"{path}#odd")


_ASKING = """
import sys
from orchestrator.tools.mcp.servers import hidden, servers_in
far, near = servers_in(sys.argv[1])
assert servers_in(sys.argv[1]) == [far, near]  # asked once
print("\\nSERVERS", far.headers, near.args, near.cwd, hidden(far)[-1], hidden(near), repr((far, near)))
"""


def test_inputs_are_asked_for_once_and_passwords_are_hidden(tmp_path: Path) -> None:
    path = _of_vs_code(tmp_path)
    leader, follower = pty.openpty()
    words = (sys.executable, "-c", _ASKING, str(path))
    with subprocess.Popen(words, stdin=follower, stdout=subprocess.PIPE, stderr=follower, text=True) as process:
        os.close(follower)
        said = _until(leader, "The key: ")
        os.write(leader, b"s3cret\n")
        said += _until(leader, "mode [fast / slow]: ")
        os.write(leader, b"other\n")
        said += _until(leader, "mode [fast / slow]: ")
        os.write(leader, b"slow\n")
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert "s3cret" not in said
    assert "choose one of: fast, slow" in said
    assert "near: not used: dev, sandbox" in said
    servers, _, shown = out.partition(" (HttpServer")
    assert servers.strip() == (
        "SERVERS {'Authorization': 'Bearer s3cret'} ('--mode', 'slow', 's3cret', '//,]') "
        f"{tmp_path}/data s3cret ('s3cret',)"
    )
    assert "s3cret" not in shown


def _until(terminal: int, text: str) -> str:
    said = ""
    while text not in said:
        said += os.read(terminal, 1000).decode()
    return said


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(GraphUnknown, match="the file is not JSON"):
        servers_of(f"mcp:{path}")
    with pytest.raises(GraphUnknown, match="there is no server 'b' in it; there are: a"):
        servers_of(f"mcp:{_file(tmp_path, {'a': {'command': 'x'}})}#b")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text('{"mcpServers": {"a": {"command": "x"}}}' + " " * MOST_BYTES)
    with pytest.raises(GraphUnknown, match="the file has more than 1,000,000 bytes"):
        servers_of(f"mcp:{path}")


def test_a_reference_for_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("mcp:.mcp.json#a") == f"mcp:{tmp_path}/.mcp.json#a"
    assert absolute("mcp:serve it") == "mcp:serve it"
    assert absolute("mcp:http://x/.json") == "mcp:http://x/.json"
