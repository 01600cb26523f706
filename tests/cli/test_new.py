"""`orchestrator new`: a project that runs, tests itself and is clean; files are never overwritten."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from httpx2 import Response
from packaging.requirements import Requirement
from starlette.requests import Request
from starlette.testclient import TestClient

from orchestrator.cli.exits import UsageError
from orchestrator.cli.new_command import LONGEST, check_name, suggestion
from orchestrator.stores import RunInfo
from orchestrator.testing import ScriptedModel
from tests.support.ports import free_port
from tests.support.shell import Shell
from tests.support.sizes import sized

FORMS = [
    ("agent", ()), ("agent", ("--yaml",)), ("graph", ()), ("graph", ("--yaml",)), ("tool", ()), ("application", ())
]  # fmt: skip


def commands_in(project: Path) -> list[list[str]]:
    """The commands that the README of a project says to try, as words."""
    lines = (project / "README.md").read_text(encoding="utf-8").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("    ")]


@pytest.mark.parametrize(("kind", "options"), FORMS[:-1])
def test_the_commands_of_its_readme_work_offline(shell: Shell, kind: str, options: tuple[str, ...]) -> None:
    name = f"first_{kind}{len(options)}"
    made = shell("new", kind, name, *options)
    assert made.code == 0, made.err
    project = shell.place / name
    assert sorted(made.out.split()) == sorted(f"{name}/{path.name}" for path in project.iterdir())
    test, look, run, *approved = commands_in(project)
    assert test == ["python", "-m", "pytest"]  # see below
    assert all(" ".join(words) in made.err.replace('"', "") for words in (look, run))
    looked = shell(*look[1:], cwd=project)
    assert looked.code == 0, looked.err
    done = shell(*run[1:], cwd=project)
    assert done.code == 0, done.err
    assert "5" in done.out
    if approved:
        asks, approves = approved
        assert shell(*asks[1:], cwd=project).code == 3
        assert not (project / "products.txt").exists()
        done = shell(*approves[1:], cwd=project)
        assert (done.code, done.out.strip()) == (0, "6")
        assert (project / "products.txt").read_text() == "6.0\n"


class Application:
    """A generated application, which its README's commands install and start."""

    def __init__(self, shell: Shell) -> None:
        assert shell("new", "application", "shop").code == 0
        self.project = shell.place / "shop"
        install, test, export, self.serve, self.ask = (" ".join(words) for words in commands_in(self.project))
        assert (install, test) == ("python -m pip install -r requirements.txt", "python -m pytest")  # see below
        port = free_port()
        address = {"UVICORN_PORT": str(port), "APP_URL": f"http://127.0.0.1:{port}"}
        self.env = {**shell.env, **address, **dict([export.removeprefix("export ").split("=")])}

    @contextmanager
    def served(self) -> Iterator[None]:
        """Run the server."""
        with subprocess.Popen(
            [sys.executable, "-m", *shlex.split(self.serve)],
            cwd=self.project,
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            try:
                assert server.stderr is not None
                assert any("Uvicorn running" in line for line in server.stderr)
                yield
            finally:
                server.terminate()

    def asked(self, *more: str, answers: str) -> subprocess.CompletedProcess[str]:
        """Run the client with more arguments than in the README, and type answers."""
        login, question = shlex.split(self.ask)[2], "What is 2 * 3?"
        return subprocess.run(
            [sys.executable, "shop_client.py", login, question, *more],
            cwd=self.project,
            env=self.env,
            input=answers,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.mark.parametrize(("answer", "approved"), [("y", True), ("n", False), ("perhaps\nYes", True)])
def test_the_commands_of_the_readme_of_an_application_work_offline(shell: Shell, answer: str, approved: bool) -> None:
    shop = Application(shell)
    for line in (shop.project / "requirements.txt").read_text().splitlines():
        wanted = None if line.startswith("#") else Requirement(line)
        assert wanted is None or wanted.specifier.contains(version(wanted.name))
    with shop.served():
        done = shop.asked(answers=f"{answer}\n")
    assert done.returncode == 0, done.stderr
    assert "Call multiply? multiply({'a': 2, 'b': 3}) [y/n]" in done.stdout
    assert ("completed: 6" in done.stdout) == approved
    assert (shop.project / "products.txt").exists() == approved


@pytest.mark.parametrize("answers", ["y\nhappened\n6\n", "retry\n"])
def test_the_client_of_an_application_answers_what_became_of_a_call_that_broke_off(shell: Shell, answers: str) -> None:
    shop = Application(shell)
    tools = shop.project / "shop_tools.py"
    whole = tools.read_text()
    write = "    with PRODUCTS.open"
    tools.write_text(whole.replace(write, f"    import os\n    os.kill(os.getpid(), 9)\n{write}"))
    with shop.served():
        broken = shop.asked(answers="y\n")
    assert broken.returncode != 0
    assert "Traceback" not in broken.stderr
    run_id = broken.stdout.split()[1]
    tools.write_text(whole)
    with shop.served():
        done = shop.asked(run_id, answers=answers)
    assert done.returncode == 0, done.stderr
    assert "[happened/failed/retry]" in done.stdout
    assert "completed: 6" in done.stdout
    assert (shop.project / "products.txt").exists() == ("retry" in answers)


@pytest.fixture
def shop_app(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of a generated application with two users, who see their own runs only."""
    assert shell("new", "application", "stall").code == 0
    monkeypatch.chdir(shell.place)
    monkeypatch.syspath_prepend(shell.place / "stall")
    monkeypatch.setenv("APP_USERS", "ann:secret,bob:other")
    module = import_module("stall_app")

    def authorize(request: Request, action: str, run: RunInfo | None) -> str | None:
        name = str(request.user.display_name)
        return name if run is None or run.labels.get("user") == name else None

    monkeypatch.setattr(module, "authorize", authorize)
    yield module
    for name in ("stall", "stall_tools", "stall_app"):
        del sys.modules[name]


ANN, BOB = ("ann", "secret"), ("bob", "other")


def test_the_chat_of_an_application_refuses_what_its_page_refuses(shop_app: ModuleType) -> None:
    with TestClient(shop_app.create_app(), raise_server_exceptions=False) as client:

        def chat(question: str, run_id: str, auth: tuple[str, str] = ANN, **headers: str) -> Response:
            return client.post("/chat", json={"question": question, "run_id": run_id}, auth=auth, headers=headers)

        assert "Call multiply?" in chat("What is 2 * 3?", "first").text
        refused = [chat(question, "first", BOB) for question in ("What is 2 * 3?", "What is 2 * 4?")]
        assert [one.status_code for one in refused] == [409, 409]
        assert refused[0].text == refused[1].text == chat("What is 2 * 4?", "first").text
        for origin in ("https://evil.example", "null", "http://testserver:81"):
            assert chat("What is 2 + 3?", "second", Origin=origin).status_code == 403
        assert '"output": "5"' in chat("What is 2 + 3?", "second", Origin="http://testserver").text
        for question, run_id in [
            ("1 + 1", "-a"),
            ("1 + 1", "a b"),
            ("1 + 1", "ä"),
            (" ", "third"),
            ("x" * 30_000, "third"),
        ]:
            assert chat(question, run_id).status_code == 422
        for given in ("Basic \xe9", "Basic a", "Basic", "Bearer x"):
            assert client.get("/agents", headers={b"Authorization": given.encode("latin-1")}).status_code == 401
        body = b'{"question": "1 + 1", "run_id": "fourth"}'
        assert client.post("/chat", content=body, auth=ANN).status_code == 422  # without a Content-Type


def test_the_chat_of_an_application_sends_no_traceback(shop_app: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop_app, "OfflineModel", lambda: ScriptedModel([]))
    with TestClient(shop_app.create_app()) as client:
        given = {"question": "What is 2 + 3?", "run_id": "first"}
        text = client.post("/chat", json=given, auth=ANN).text
        assert '"status": "failed"' in text
        assert "Traceback" not in text
        assert "ScriptedModel" not in text


@pytest.mark.full
@pytest.mark.parametrize(("kind", "options"), sized([FORMS[0]], FORMS))
def test_its_own_test_passes(shell: Shell, kind: str, options: tuple[str, ...]) -> None:
    assert shell("new", kind, "second", *options).code == 0
    run_python(shell.place / "second", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")


@pytest.mark.full
def test_their_code_is_clean(shell: Shell) -> None:
    place = shell.place / "all"
    for number, (kind, options) in enumerate(FORMS):
        for name in (f"third{number}", f"{'a' * (LONGEST - 1)}{number}"):
            assert shell("new", kind, name, *options, "--directory", f"all/{name}").code == 0
            run_python(
                place / name, "ruff", "check", "--isolated", "--select", "A,B,E,F,I,N,SIM,UP", "--ignore=E501", "."
            )
    run_python(place, "ruff", "format", "--isolated", "--check", ".")
    together = shell.place / "together"
    together.mkdir()
    for path in place.glob("third*/*.py"):
        shutil.copy(path, together)
    run_python(together, "mypy", "--strict", ".")
    (together / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportMissingTypeStubs": false}')
    run_python(together, "pyright", "--pythonpath", sys.executable)


def run_python(place: Path, *words: str) -> None:
    """Run a module of Python in a directory; it succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=place,
        # Options of these tests are none of its own; the project has no plug-in for asyncio.
        env={**os.environ, "PYTEST_ADDOPTS": "-p no:asyncio"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("my-agent", "my_agent"), ("MyAgent", "my_agent"), ("2fast", "fast"), ("a b", "a_b"), ("../x", "x"),
        ("", "my_agent"), ("Größe", "groe"), ("日本", "my_agent"), ("_private", "private"), ("test_x", "x"),
        ("class", "class_agent"), ("match", "match_agent"), ("json", "json_agent"), ("test", "my_agent"),
        ("list", "list_agent"), ("orchestrator", "orchestrator_agent"), ("graphs", "graphs_agent"),
        ("react", "react_agent"), ("pydantic", "pydantic_agent"), ("Tests", "tests_agent"),
    ],
)  # fmt: skip
def test_a_name_that_hides_or_is_none_is_refused_with_another(shell: Shell, name: str, suggested: str) -> None:
    done = shell("new", "agent", name)
    assert done.code == 2
    assert done.err.rstrip().endswith(f"such as {suggested}")
    assert [path.name for path in shell.place.iterdir()] == ["trial.py"]
    assert shell("new", "agent", suggested).code == 0


@pytest.mark.parametrize("name", ["fastapi", "starlette", "uvicorn", "jinja2", "httpx2"])
def test_a_name_that_hides_what_an_application_needs_is_refused_although_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(UsageError, match="applications use"):
        check_name(name, "application")


def test_a_name_that_is_too_long_is_refused_with_a_shorter_one(shell: Shell) -> None:
    done = shell("new", "tool", "long" * 20)
    assert done.code == 2
    assert len(suggestion("long" * 20, "tool")) <= LONGEST
    assert shell("new", "tool", "a" * LONGEST).code == 0


@pytest.mark.parametrize("there", ["fourth.py", "README.md", ".env.example"])
def test_nothing_is_overwritten(shell: Shell, there: str) -> None:
    (shell.place / "here").mkdir()
    (shell.place / "here" / there).write_text("mine")
    done = shell("new", "graph", "fourth", "--directory", "here")
    assert done.code == 2
    assert f"here has {there} already" in done.err
    assert [path.name for path in (shell.place / "here").iterdir()] == [there]
    assert (shell.place / "here" / there).read_text() == "mine"


def test_not_even_through_a_link_that_leads_nowhere(shell: Shell) -> None:
    (shell.place / "here").mkdir()
    (shell.place / "here" / "README.md").symlink_to(shell.place / "elsewhere")
    assert shell("new", "graph", "fifth", "--directory", "here").code == 2
    assert not (shell.place / "elsewhere").exists()


def test_it_goes_into_a_directory_with_other_files_and_lists_what_it_wrote(shell: Shell) -> None:
    (shell.place / "a b").mkdir()
    (shell.place / "a b" / "mine.txt").write_text("mine")
    done = shell("new", "tool", "sixth", "--directory", "a b", "--json")
    assert done.json == {
        "directory": "a b", "files": [".env.example", ".gitignore", "README.md", "sixth.py", "test_sixth.py"],
    }  # fmt: skip
    assert {path.name for path in (shell.place / "a b").iterdir()} == {*done.json["files"], "mine.txt"}
    assert "cd 'a b'" in shell("new", "agent", "seventh", "--directory", "a b/c").err.replace("/c", "")


def test_a_place_that_cannot_be_written_says_so(shell: Shell) -> None:
    (shell.place / "file").write_text("")
    done = shell("new", "agent", "eighth", "--directory", "file")
    assert done.code == 2
    assert "cannot be written" in done.err


@pytest.mark.parametrize("kind", ["tool", "application"])
def test_python_has_no_yaml_form(shell: Shell, kind: str) -> None:
    done = shell("new", kind, "ninth", "--yaml")
    assert (done.code, done.out) == (2, "")
    assert "leave --yaml out" in done.err
