"""A question that asks for an object: its fields are asked for at the terminal, one after the other."""

from __future__ import annotations

import json

from tests.support.shell import Shell, Terminal

ASKING = """
from typing import Any
from pydantic import BaseModel
from orchestrator import Graph
from orchestrator.nodes import Ask

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Your \\x1b[31mname"},
        "size": {"type": "string", "enum": ["S", "M"]},
        "count": {"type": "integer", "default": 1},
        "gift": {"type": "boolean"},
        "note": {"type": "string"},
    },
    "required": ["name", "size", "gift"],
}

class Order(BaseModel):
    order: dict[str, Any] = {}

asking = Graph(
    name="asking", state=Order, nodes={"ask": Ask(prompt="Who?", accepts=FORM, answer="order")},
    edges="START -> ask -> END", output="order",
)
"""
RUN = ("run", "orders:asking", "--input", "{}", "--run-id", "r", "--json")


def begun(shell: Shell, terminal: Terminal) -> None:
    assert "Who?" in terminal.wait_for("name (Your ")


def test_each_field_is_asked_for_until_it_fits(shell: Shell) -> None:
    (shell.place / "orders.py").write_text(ASKING)
    with shell.terminal(*RUN, env={"NO_COLOR": "1"}) as terminal:
        begun(shell, terminal)
        terminal.type("Ann\r")
        terminal.wait_for("size (S/M): ")
        terminal.type("XL\r")
        assert 'size must be one of "S", "M"' in terminal.wait_for("size (S/M): ")
        terminal.type("M\r")
        terminal.wait_for("count (integer; empty: 1): ")
        terminal.type("many\r")
        assert "count must be" in terminal.wait_for("count (integer; empty: 1): ")
        terminal.type("\r")
        terminal.wait_for("gift (boolean): ")
        terminal.type("yes\r")
        terminal.wait_for("note (string; may be empty): ")
        terminal.type("\r")
        assert terminal.end() == 0
    assert json.loads(shell("show", "r", "--json").out)["output"] == {
        "name": "Ann", "size": "M", "count": 1, "gift": True,
    }  # fmt: skip


def test_a_whole_object_is_taken_too(shell: Shell) -> None:
    (shell.place / "orders.py").write_text(ASKING)
    with shell.terminal(*RUN, env={"NO_COLOR": "1"}) as terminal:
        begun(shell, terminal)
        terminal.type('{"name": "Ann", "size": "M", "gift": false}\r')
        assert terminal.end() == 0
    assert json.loads(shell("show", "r", "--json").out)["output"] == {"name": "Ann", "size": "M", "gift": False}
