"""check --prove: claims, what breaks them, drawings, and exit codes."""

from __future__ import annotations

import json

from tests.cli.test_looking import ASK
from tests.render.proved import block
from tests.support.shell import Shell

CLEANING = block("python")
TEXT = block("text")


def test_a_refuted_claim_is_shown_drawn_and_the_exit_code_is_1(shell: Shell) -> None:
    (shell.place / "cleaning.py").write_text(CLEANING)
    shown, plain, drawn, page = shell.all(
        ("check", "cleaning.py:graph", "--prove"),
        ("check", "cleaning.py:graph"),
        ("check", "cleaning.py:graph", "--prove", "--draw", "way.svg", "--json"),
        ("check", "cleaning.py:graph", "--prove", "--draw", "way.html"),
    )
    assert (shown.code, shown.out) == (1, TEXT)
    assert (plain.code, plain.out) == (0, "cleaning: OK\n")
    assert drawn.code == 1
    assert drawn.err == "wrote way.svg: refuted, every path to act passes a confirmation\n"
    assert "<svg" in (shell.place / "way.svg").read_text()
    proof = drawn.json["proofs"][0]
    assert (proof["about"], proof["verdict"]) == ("confirmed", "refuted")
    assert [step["node"] for step in proof["witness"]] == ["START", "look", "act"]
    assert (page.code, "cannot show a path" in page.err) == (2, True)


def test_what_is_undecided_is_decided_by_naming_the_tools(shell: Shell) -> None:
    (shell.place / "agent.py").write_text(
        "from orchestrator.strategies.react import react\n\ngraph = react(confirm=None)\n"
    )
    undecided, harmless, proved, without = shell.all(
        ("check", "agent.py:graph", "--prove"),
        ("check", "agent.py:graph", "--prove", "--tools", "arithmetic"),
        ("check", "react", "--prove", "--draw", "way.svg"),
        ("check", "react", "--tools", "arithmetic"),
    )
    assert undecided.code == 1
    assert "  undecided  every path to act/execute passes a confirmation\n" in undecided.out
    assert "pass --tools" in undecided.out
    assert "START -> compact -> think -> read (calls) -> act/check (valid) -> act/execute" in undecided.out
    assert harmless.code == 0
    assert (proved.code, proved.err) == (0, "no path breaks a claim, so nothing was drawn\n")
    assert not (shell.place / "way.svg").exists()
    assert (without.code, "--tools needs --prove" in without.err) == (2, True)


def test_of_a_graph_with_problems_nothing_is_proved(shell: Shell) -> None:
    (shell.place / "bad.yaml").write_text(json.dumps({**ASK, "edges": "START -> aks -> END"}))
    (found,) = shell.all(("check", "bad.yaml", "--prove", "--json"))
    assert (found.code, found.json["ok"], found.json["proofs"]) == (1, False, [])
