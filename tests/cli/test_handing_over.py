"""What commands say that hand a run over to workers."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell

NOWHERE = "restate://127.0.0.1:9"
"""No server is there: a submission fails, and the worker's look finds the run."""


def test_a_command_that_asks_no_model_says_nothing_about_one(shell: Shell) -> None:
    for words in (
        ("enqueue", "tool_user", "What is 2*3?", "--run-id", "r"),
        ("schedule", "tool_user", "0 6 * * *", "What is 2*3?"),
    ):
        done = shell(*words)
        assert done.code == 0
        assert "arithmetic" not in done.err


@pytest.mark.full
@pytest.mark.parametrize("given", [("--engine", NOWHERE), ()], ids=["option", "environment"])
def test_with_an_engine_a_worker_continues_the_run(shell: Shell, given: tuple[str, ...]) -> None:
    for name in ("a", "b"):
        shell("run", "trial:writer", "x", "--run-id", name, "--tools", "trial")
    assert "resume a" in shell("approve", "a", "--no-resume").err
    if not given:
        shell.env["ORCHESTRATOR_ENGINE"] = NOWHERE
    approved = shell("approve", "b", "--no-resume", *given)
    assert approved.code == 0
    assert "b is answered; a worker continues it" in approved.err
    assert "resume b" not in approved.err
