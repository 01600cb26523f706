"""What the command line believes of the files beside it: graph files, and `.env`."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.shell import Shell

FILE = """
name: shop
state:
  name: Order
  fields:
    topic: {type: str, default: ""}
    said: {type: "list[str]", default: [], reducer: "shop:longest"}
input: topic
output: said
nodes:
  count: shop:count
  sure: {kind: ask, prompt: "Sure?", answer: topic}
edges: START -> count -> sure -> END
"""
CODE = """
from pathlib import Path
from orchestrator import node
Path("imported").touch()

@node
def count(state):
    return {"said": ["counted"]}

def longest(old: list, new: list) -> list:
    return max(old, new, key=len)
"""


@pytest.fixture
def place(shell: Shell) -> Shell:
    """A directory with a graph file, and the module that it names."""
    (shell.place / "shop.yaml").write_text(FILE)
    (shell.place / "shop.py").write_text(CODE)
    return shell


def test_a_graph_file_runs_no_code_until_it_is_trusted(place: Shell) -> None:
    refused = place("run", "shop.yaml", "tea")
    assert (refused.code, refused.out) == (2, "")
    assert "field 'said': shop:longest\n  node 'count': shop:count" in refused.err
    assert not (place.place / "imported").exists()
    command = refused.err.splitlines()[-1].strip()
    assert shlex.split(command)[-5:] == ["run", "--trust", "shop", "shop.yaml", "tea"]
    paused = place(*shlex.split(command)[-5:], "--run-id", "r")
    assert (paused.code, (place.place / "imported").exists()) == (3, True)
    done = place("answer", "r", "coffee")  # what was trusted is kept with the run, under its seal
    assert (done.code, json.loads(done.out)) == (0, ["counted"])


def test_a_trusted_file_that_names_more_later_is_refused(place: Shell) -> None:
    assert place("run", "shop.yaml", "tea", "--trust", "shop", "--run-id", "r").code == 3
    (place.place / "shop.yaml").write_text(FILE.replace("shop:count", "other:count"))
    (place.place / "other.py").write_text("open('owned', 'w')")
    refused = place("answer", "r", "coffee")
    assert (refused.code, "--trust other" in refused.err) == (2, True)
    recovering = place("recover")
    assert not (place.place / "owned").exists(), recovering.err


def test_the_person_at_a_terminal_is_asked(place: Shell) -> None:
    with place.terminal("run", "shop.yaml", "tea") as terminal:
        shown = terminal.wait_for("[y/N] ")
        assert "shop:longest" in shown
        assert "Import shop?" in shown
        terminal.type("\n")
        assert terminal.end() == 2
    assert not (place.place / "imported").exists()
    with place.terminal("run", "shop.yaml", "tea") as terminal:
        terminal.wait_for("[y/N] ")
        terminal.type("y\n")
        terminal.wait_for("Sure?")
        terminal.type("yes\n")
        assert terminal.end() == 0


def test_check_and_render_import_nothing_of_a_graph_file(place: Shell) -> None:
    checked, drawn, whole = place.all(("check", "shop.yaml"), ("render", "shop.yaml"), ("check", "shop.yaml", "--json"))
    assert (checked.code, drawn.code) == (0, 0)
    assert checked.out.startswith("shop: no problem in what was checked\n")
    assert "not checked without --trust  outcomes and join of node 'count': shop:count" in checked.out
    assert "count" in drawn.out
    assert len(whole.json["skipped"]) == 2
    assert not (place.place / "imported").exists()
    trusted = place("check", "shop.yaml", "--trust", "shop")
    assert (trusted.out, (place.place / "imported").exists()) == ("shop: OK\n", True)


@pytest.mark.parametrize("trust", [(), ("--trust", "subprocess", "--trust", "builtins")])
def test_python_itself_is_no_tool_and_no_reducer(shell: Shell, trust: tuple[str, ...]) -> None:
    """A file needs no module of its own to run code, if any function could be named."""
    graph = {
        "name": "g",
        "state": {"name": "S", "fields": {"tool": {"type": "str", "default": "getoutput"},
                                          "args": {"type": "dict[str, str]", "default": {"cmd": "touch owned"}},
                                          "result": {"type": "any", "default": None}}},
        "nodes": {"x": {"kind": "execute", "tools": ["subprocess:getoutput"], "tool": "tool", "args": "args",
                        "result": "result", "steps": None, "question": None}},
        "edges": "START -> x -> END",
    }  # fmt: skip
    (shell.place / "tool.json").write_text(json.dumps(graph))
    graph["nodes"] = {"x": {"kind": "ask", "prompt": "?", "answer": "result"}}
    graph["state"]["fields"]["result"] = {"type": "any", "default": "1", "reducer": "builtins:eval"}  # type: ignore[index]
    (shell.place / "reducer.json").write_text(json.dumps(graph))
    for name in ("tool.json", "reducer.json"):
        run, checked = shell.all(("run", name, *trust), ("check", name, *trust))
        assert (run.code, "Python's standard library" in run.err) == (2, True), run.err
        assert checked.code in (1, 2)
        assert "Python's standard library" in checked.out + checked.err
    assert not (shell.place / "owned").exists()


def test_a_call_of_any_function_needs_trust(shell: Shell) -> None:
    graph = {
        "name": "g",
        "state": {"name": "S", "fields": {"command": {"type": "str", "default": "touch owned"},
                                          "code": {"type": "int", "default": 0}}},
        "nodes": {"x": {"kind": "call", "ref": "os:system", "args": {"command": "command"}, "result": "code"}},
        "edges": "START -> x -> END",
    }  # fmt: skip
    (shell.place / "g.json").write_text(json.dumps(graph))
    refused = shell("run", "g.json")
    assert (refused.code, "--trust os" in refused.err) == (2, True)
    assert not (shell.place / "owned").exists()


def test_check_notes_calls_that_nothing_confirms(shell: Shell) -> None:
    shell("render", "tool_user", "--format", "yaml", "-o", "g.yaml")
    text = (shell.place / "g.yaml").read_text()
    assert "note" not in shell("check", "g.yaml").out
    (shell.place / "g.yaml").write_text(text.replace("time_out -> END", "time_out -> execute"))
    assert "note  execute calls tools without a confirmation before it: START -> " in shell("check", "g.yaml").out


def test_references_with_ends_of_lines_make_no_lines(place: Shell) -> None:
    refs = ["shop:count\nnothing of it is run", "shop\n\nerror: it is trusted\n:x"]
    ask = {"kind": "ask", "prompt": "?", "answer": "topic", "tools": refs}
    state = {"name": "S", "fields": {"topic": {"type": "str", "default": ""}}}
    graph = {"name": "g", "state": state, "input": "topic", "nodes": {"a": ask}, "edges": "START -> a -> END"}
    (place.place / "g.json").write_text(json.dumps(graph))
    (place.place / "h.json").write_text(json.dumps({**graph, "name": "h\nh: OK"}))
    for done in place.all(("run", "g.json", "x"), ("check", "g.json"), ("check", "h.json")):
        lines = f"{done.out}\n{done.err}".splitlines()
        assert not [one for one in lines if one.startswith(("nothing", "error: it is", "h: OK"))], lines
    with place.terminal("run", "g.json", "x") as terminal:
        shown = terminal.wait_for("[y/N] ")
        assert "\nerror: it is" not in shown.replace("\r", "")
        terminal.type("\n")
        assert terminal.end() == 2


@pytest.mark.full
def test_keys_of_a_dotenv_are_taken_once_their_user_has_agreed(shell: Shell) -> None:
    """Otherwise the author of the file could read, in their account, what a model is asked here."""
    file = shell.place / ".env"
    file.write_text("OPENAI_API_KEY=theirs\n")
    ask = ("run", "react", "2+2", "--model", "openai:m")
    address = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    piped = shell(*ask, env=address)
    assert ".env: did not take OPENAI_API_KEY: agree to it on a terminal, or set it in the environment" in piped.err
    for answer, said in (("\r", "did not take OPENAI_API_KEY"), ("y\r", "took OPENAI_API_KEY")):
        with shell.terminal("runs") as terminal:
            terminal.wait_for("Use OPENAI_API_KEY of the .env in this directory? [y/N]")
            terminal.type(answer)
            terminal.wait_for(said)
            terminal.end()
    assert ".env: took OPENAI_API_KEY" in shell("runs").err  # agreed to before
    assert "did not take" in shell("runs", env={"XDG_STATE_HOME": str(shell.place / "another")}).err
    (elsewhere := shell.place / "elsewhere").mkdir()
    (elsewhere / ".env").symlink_to(file)
    assert "did not take" in shell("runs", cwd=elsewhere).err
    file.write_text("OPENAI_API_KEY=another\n")
    assert "did not take OPENAI_API_KEY: agree" in shell("runs").err
    with shell.terminal("runs") as terminal:
        terminal.wait_for("Use OPENAI_API_KEY of the .env in this directory? [y/N]")
        terminal.type("n\r")
        terminal.wait_for("you refused")
        terminal.end()
    with shell.terminal("runs") as terminal:  # a no is kept as a yes is
        assert "[y/N]" not in terminal.wait_for("WHAT HAPPENED")
    (kept,) = re.findall(r"you refused: to be asked again, remove (\S+), or set it", shell("runs").err)
    Path(kept).unlink()
    with shell.terminal("runs") as terminal:
        terminal.wait_for("[y/N]")
    assert ".env" not in shell("runs", env={"OPENAI_API_KEY": "mine"}).err


@pytest.mark.parametrize("name", ["A of this shell? [y/N] n\nKept. Show runs? X_API_KEY", "A" * 200 + "_API_KEY"])
def test_the_name_of_a_key_makes_no_question_of_its_own(shell: Shell, name: str) -> None:
    (shell.place / ".env").write_text(f"'{name}'=theirs\n")
    with shell.terminal("runs") as terminal:
        shown = terminal.wait_for("no runs")
        assert "this directory?" not in shown
        assert "ignored A" in shown


@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_a_directory_whose_name_is_no_text_may_have_keys(shell: Shell) -> None:
    place = Path(os.fsdecode(bytes(shell.place) + b"/\xff"))
    place.mkdir()
    (place / ".env").write_text("OPENAI_API_KEY=theirs\n")
    assert "did not take OPENAI_API_KEY" in shell("runs", cwd=place).err
