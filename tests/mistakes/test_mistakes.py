"""The answer to each mistake names the thing, the fault and the fix, in the words of the place where it is made."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from orchestrator import Executor
from tests.mistakes.table import BEFORE, BEGIN, COMMANDS, FILES, PYTHON, PYTHON_WORDS, YAML, Mistake
from tests.support.shell import Shell


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A project with a few runs."""
    found = Shell(tmp_path_factory.mktemp("project"), inside=True)
    for name, text in FILES.items():
        (found.place / name).write_text(text)
    for words in BEFORE:
        found(*words)

    async def program() -> None:
        known: dict[str, Any] = {}
        exec(FILES["fails.py"].replace('name="fails"', 'name="batch"'), known)
        async with Executor(store=f"sqlite:///{found.place}/.orchestrator/runs.db") as executor:
            await executor.start(known["fails"], "x", run_id="program")

    anyio.run(program)
    return found


def check(mistake: Mistake, answer: str, *, never: tuple[str, ...] = ()) -> None:
    """Check an answer; line breaks in it do not count."""
    flat = " ".join(answer.split())
    missing = [part for part in mistake.says if part not in flat]
    wrong = [part for part in (*mistake.never, *never) if part in flat]
    assert (missing, wrong) == ([], []), answer


def test_there_are_sixty() -> None:
    assert len(COMMANDS) + len(YAML) + len(PYTHON) >= 60


@pytest.mark.parametrize("mistake", COMMANDS, ids=lambda one: one.name)
def test_on_the_command_line(shell: Shell, mistake: Mistake) -> None:
    done = shell(*mistake.does)
    check(mistake, done.err + done.out, never=PYTHON_WORDS)


@pytest.mark.parametrize(("mistake", "typed"), YAML, ids=lambda one: getattr(one, "name", ""))
def test_in_yaml(shell: Shell, mistake: Mistake, typed: str) -> None:
    text = FILES["shop.yaml"].replace(str(mistake.does), typed, 1)
    assert text != FILES["shop.yaml"]
    (shell.place / "typed.yaml").write_text(text)
    done = shell("check", "typed.yaml")
    assert done.code != 0
    check(mistake, done.err + done.out, never=PYTHON_WORDS)


@pytest.mark.parametrize("mistake", PYTHON, ids=lambda one: one.name)
def test_in_python(mistake: Mistake, caplog: pytest.LogCaptureFixture) -> None:
    known: dict[str, Any] = {}
    exec(f"{BEGIN}\nasync def program():\n{textwrap.indent(str(mistake.does).strip(), '    ')}", known)
    program: Callable[[], Awaitable[object]] = known["program"]
    with pytest.raises(Exception) as found, caplog.at_level(logging.WARNING):  # noqa: PT011  any: its text is checked
        anyio.run(program)
    check(mistake, f"{found.value}\n{caplog.text}")
