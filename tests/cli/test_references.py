"""Where code comes from: what the user named, what a run recorded, and what is not followed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.shell import Shell
from tests.support.sizes import sized

LIBRARY = """
import asyncio, trial
from orchestrator import Executor

async def main():
    async with Executor(store="sqlite:///library.db", graphs=[trial.two]) as executor:
        refs = {"graph": "evil:graph", "tools": [], "model": None}
        await executor.start(trial.two, {"topic": "roses"}, run_id="lib", refs=refs)

asyncio.run(main())
"""


def test_a_run_goes_on_from_another_directory(shell: Shell) -> None:
    """Its references are followed where they were written, by the file that they are in."""
    elsewhere = shell.place / "elsewhere"
    elsewhere.mkdir()
    assert shell("run", "trial.py:number", "--run-id", "n").code == 3
    store = f"sqlite:///{shell.place}/.orchestrator/runs.db"
    done = shell("answer", "n", "4", "--store", store, cwd=elsewhere)
    assert (done.code, done.out) == (0, "4\n")


@pytest.mark.full
def test_a_store_from_elsewhere_is_not_trusted(shell: Shell) -> None:
    shell("run", "trial:number", "--run-id", "n")
    (shell.place / "evil.py").write_text("open('owned', 'w')")
    shutil.copy(shell.place / ".orchestrator/runs.db", shell.place / "copy.db")
    run = sized(shell.typed, shell.sh)
    with shell.begin(LIBRARY, module="tests.support.script") as library:
        assert library.end().code == 0
    copied, theirs = shell.all(
        ("answer", "n", "4", "--store", "sqlite:///copy.db"),
        ("resume", "lib", "--store", "sqlite:///library.db"),
    )
    assert (copied.code, copied.out) == (2, "")
    assert "add --graph, --tools, --model" in copied.err
    assert "--graph trial:number --tools arithmetic --model offline" in copied.err
    assert (theirs.code, "add --graph." in theirs.err) == (2, True)
    assert "--graph evil:graph" in theirs.err
    assert "--model" not in theirs.err  # it has none
    assert not (shell.place / "owned").exists()

    named = ("--graph", "trial.py:number", "--tools", "arithmetic", "--model", "offline")
    done, paused = shell.all(
        ("answer", "n", "4", "--store", "sqlite:///copy.db", *named),
        ("resume", "lib", "--store", "sqlite:///library.db", "--graph", "trial:two"),
    )
    assert (done.code, done.out) == (0, "4\n")
    assert paused.code == 3
    last = run(paused.command.replace("VALUE", "up").replace("'up|down'", "up"))  # it names the graph again
    assert "resumed" in last.err
    assert last.code == 3


def test_a_seal_is_for_one_run_and_one_key(shell: Shell) -> None:
    shell("run", "trial:number", "--run-id", "n")
    (shell.place / ".env").write_text(f"XDG_STATE_HOME={shell.place}/brought\nORCHESTRATOR_MODEL=offline\n")
    key = shell.place / "home/.local/state/orchestrator/key"
    assert key.stat().st_mode & 0o777 == 0o600
    brought = shell.place / "brought/orchestrator/key"
    brought.parent.mkdir(parents=True)
    key.rename(brought)
    done = shell("answer", "n", "4")
    assert (done.code, "add --graph" in done.err) == (2, True)


@pytest.mark.full
def test_dotenv_is_read_by_the_command_line_only(shell: Shell) -> None:
    (shell.place / ".env").write_text(
        "ORCHESTRATOR_STORE=sqlite:///from-env.db\nORCHESTRATOR_MODEL=trial:model\nORCHESTRATOR_ON_CHANGE=maybe\n"
    )
    words = ("run", "tool_user", "What is 1+1?", "--approve", "none")
    code = (
        "import os, orchestrator; from orchestrator import Graph, Executor; print(os.environ.get('ORCHESTRATOR_STORE'))"
    )
    assert shell.sh([sys.executable, "-c", code]).out == "None\n"
    done = shell(*words, env={"ORCHESTRATOR_STORE": "sqlite:///mine.db"})
    assert (done.out, (shell.place / "mine.db").exists()) == ("2\n", True)
    assert not (shell.place / "from-env.db").exists()
    assert ".env: ignored ORCHESTRATOR_MODEL, ORCHESTRATOR_ON_CHANGE, which must be set in the environment" in done.err
    taken = shell("runs")
    assert ".env: took ORCHESTRATOR_STORE; ignored" in taken.err
    assert "no runs in sqlite:///from-env.db" in taken.err


@pytest.mark.full
def test_files_in_the_current_directory_hide_no_package(shell: Shell) -> None:
    """Also where it is a place to import from, because a module in it was named, and where Python puts it first."""
    for name in ("graphviz", "yaml", "json", "networkx", "dotenv", "sqlite3", "typer"):
        (shell.place / f"{name}.py").write_text(f"open('owned', 'a').write({name!r})")
    (shell.place / "mine.py").write_text("import helps, graphviz, yaml, trial\ngraph = trial.number\n")
    (shell.place / "helps.py").touch()
    (shell.place / "below").mkdir()
    (shell.place / "below/mine_too.py").write_text(
        "import helps, below_only, yaml\nfrom trial import number as graph\n"
    )
    (shell.place / "below/below_only.py").touch()
    for ref in sized(("mine:graph",), ("mine", "mine:graph", "below/mine_too.py")):
        done = shell.sh([sys.executable, "-m", "orchestrator", "run", ref, "--tools", "trial:note"])
        assert (done.code, "How many?" in done.err) == (3, True), done.err
    assert not (shell.place / "owned").exists()


def test_a_folder_graphs_of_the_users_is_theirs(tmp_path: Path) -> None:
    """What their own code imports by this name is theirs; a shipped graph is found all the same."""
    shell = Shell(tmp_path)  # a process for each command: in this one another test may have imported the shipped graphs
    (shell.place / "graphs").mkdir()
    (shell.place / "graphs/mine.py").write_text("from trial import number as graph\n")
    (shell.place / "agent.py").write_text("from graphs.mine import graph\n")
    (shell.place / "graphs/react.py").write_text("open('owned', 'w')\n")
    own, named, shipped = shell.all(
        ("check", "agent:graph"), ("check", "graphs.mine:graph"), ("check", "graphs.react:graph")
    )
    assert (own.out, named.out, shipped.out) == ("number: OK\n", "number: OK\n", "react: OK\n")
    assert not (shell.place / "owned").exists()


def test_a_dotenv_gives_keys_and_a_store_in_its_directory_only(shell: Shell) -> None:
    outside = shell.place.parent / "outside.db"
    (shell.place / "link.db").symlink_to(outside)
    for store in (
        f"sqlite:///{outside}",
        "sqlite:///../outside.db",
        "sqlite:///link.db",
        "memory://",
        "postgres://x/y",
    ):
        (shell.place / ".env").write_text(f"ORCHESTRATOR_STORE={store}\nSOME_API_KEY=${{HOME}}\nA=1\n")
        done = shell("runs")
        assert ".env: did not take SOME_API_KEY: agree to it on a terminal, or set" in done.err
        assert "environment; ignored ORCHESTRATOR_STORE, A, which" in done.err
        assert "no runs in sqlite:///.orchestrator/runs.db" in done.err
        assert str(shell.place) not in done.err
    (shell.place / ".env").write_text("A=" + "x" * 200_000)
    assert (shell("runs").code, shell("runs").err) == (2, "error: .env: more than 100,000 bytes\n")


def test_a_graph_of_the_users_own_hides_no_shipped_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)  # processes, as above
    (shell.place / "graphs.py").write_text("from trial import number as mine")
    shipped, own = shell.all(("run", "tool_user", "What is 1+1?", "--approve", "none"), ("check", "graphs:mine"))
    assert (shipped.code, shipped.out) == (0, "2\n")
    assert own.out == "number: OK\n"


def test_a_changed_graph_is_refused_where_that_was_asked_for(shell: Shell) -> None:
    graph = {
        "name": "hello",
        "state": {"name": "Hello", "fields": {"who": {"type": "str"}, "reply": {"type": "str", "default": ""}}},
        "input": "who",
        "nodes": {
            "ask": {"kind": "ask", "prompt": "Who are you?"},
            "again": {"kind": "ask", "prompt": "Are you sure, {reply}?", "show": ["reply"]},
        },
        "edges": "START -> ask -> again -> END",
        "output": "reply",
    }
    file, strict = shell.place / "hello.yaml", {"ORCHESTRATOR_ON_CHANGE": "strict"}
    file.write_text(json.dumps(graph))
    assert shell("run", "hello.yaml", "ann", "--run-id", "h").code == 3
    assert shell("answer", "h", "Ann", "--no-resume").code == 0
    graph["nodes"]["again"]["prompt"] = "Really, {reply}?"  # type: ignore[index]
    file.write_text(json.dumps(graph))
    refused = shell("resume", "h", env=strict)
    assert refused.code == 1
    assert "changed since it was last driven" in refused.err
    accepted = shell("resume", "h", "--accept-changes", env=strict)
    assert accepted.code == 3
    assert "Really, Ann?" in accepted.err


def test_a_link_does_not_say_which_store_it_is(shell: Shell) -> None:
    """A directory that another person made leads no command to another store, and has no file made elsewhere."""
    (other := shell.place.parent / "other").mkdir()
    (shell.place / ".orchestrator").symlink_to(other)
    run = ("run", "trial:number", "--run-id", "n")
    for done in shell.all(run, ("runs",), ("recover",)):
        assert (done.code, "runs.db leads out of this directory" in done.err) == (2, True), done.err
    assert not list(other.iterdir())
    assert shell("runs", "--store", "sqlite:///.orchestrator/runs.db").code == 0  # it was named
    (shell.place / ".orchestrator").unlink()
    (shell.place / ".orchestrator").mkdir()
    (link := shell.place / ".orchestrator/runs.db").symlink_to(other / "runs.db")
    assert shell("runs").code == 2
    link.unlink()
    link.symlink_to("../here.db")
    assert shell(*run).code == 3


def test_a_key_that_others_can_read_seals_nothing(shell: Shell) -> None:
    code = ("--graph", "trial:noted", "--tools", "trial:note", "--model", "offline")
    run = ("run", "trial:noted", "--tools", "trial:note")
    assert shell(*run, "--run-id", "a").code == 3
    key = shell.place / "home/.local/state/orchestrator/key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert shell("approve", "a", "--no-resume").code == 0
    key.chmod(0o644)
    refused, paused = shell("resume", "a"), shell.process("resume", "a", *code)  # a process warns once
    assert (refused.code, paused.code) == (2, 3)
    assert paused.err.count("key is open to other users") == 1
    assert not (shell.place / "notes.txt").exists()
    key.unlink()
    assert shell(*run, "--run-id", "b").code == 3
    done = shell("approve", "b")
    assert (done.code, done.err.count("open to other users")) == (0, 0)


def test_a_run_that_is_not_there_imports_no_module_of_its_name(shell: Shell) -> None:
    (shell.place / "demo.py").write_text("open('owned', 'w')\nfrom trial import number as graph\n")
    missing, drawn = shell("render", "demo"), shell("render", "trial:number")
    assert (missing.code, drawn.code) == (2, 0)
    assert "this store has no run 'demo', and unknown graph 'demo'" in missing.err
    assert not (shell.place / "owned").exists()


PROGRAM = """
import asyncio
from pydantic import BaseModel
from orchestrator import Approve, Executor, Graph
from orchestrator.nodes import Complete, Confirm
from orchestrator.testing import ScriptedModel

class Question(BaseModel):
    question: str
    answer: str = ""

def asked(prompt):
    return Graph(
        name="asked", state=Question, input="question", output="answer",
        nodes={"reply": Complete(prompt=prompt, result="answer"), "ask": Confirm(prompt="Go on?")},
        edges="START -> reply -> ask -> END : approved\\nask -> END : denied",
    )

model = ScriptedModel(lambda request: request.messages[-1].content[:5])
old, new = asked("Answer {question}"), asked("Brief {question}")

async def main():
    async with Executor("sqlite:///program.db", graphs=[old], model=model) as executor:
        run = await executor.start(old, "x", run_id="one")
        await executor.answer("one", run.waiting[0].id, Approve(), resume=False)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.full
def test_a_refusal_of_references_names_options_that_the_command_has(shell: Shell) -> None:
    (shell.place / "program.py").write_text(PROGRAM)
    done = shell.sh([sys.executable, "program.py"])
    assert done.code == 0, done.err
    store = ("--store", "sqlite:///program.db")
    left, without, *replays, named = shell.all(
        ("recover", *store),
        ("replay", "one", "--graph", "program.py:new", "--live", "always", *store),
        *(
            ("replay", "one", "--graph", "program.py:new", "--live", "always", "--model", model, "--json", *store)
            for model in ("program.py:model", "default=program.py:model")
        ),
        ("replay", "one", "--graph", "program.py:new", "--live", "always", "--model", "x=program.py:model", *store),
    )
    assert (left.code, "resume one` with --graph, --model" in left.err) == (1, True), left.err
    assert (without.code, "add --model." in without.err) == (2, True), without.err
    assert [(one.code, one.json["replays"][0]["made"]) for one in replays] == [(1, 1)] * 2
    assert (named.code, "add --model REF without a name." in named.err) == (2, True), named.err


def test_a_module_that_imports_more_when_it_is_looked_at_is_no_graph(shell: Shell) -> None:
    for words, said in (
        (("run", "openai", "x"), "module openai contains no graph"),
        (("run", "tool_user", "x", "--tools", "openai"), "there is no tool in openai"),
    ):
        done = shell.process(*words)
        assert (done.code, "Traceback" in done.err) == (2, False), done.err
        assert said in done.err


LOOKS = """
from pydantic import BaseModel
from orchestrator import Graph, node

class State(BaseModel):
    path: str = ""
    said: list[str] = []

@node
async def look(state, ctx):
    return {"said": [(await ctx.tool("view_file", path=path)).text for path in (".", "data", state.path)]}

graph = Graph(
    name="looks", state=State, input="path", nodes={"look": look}, edges="START -> look -> END", output="said"
)
"""


def test_a_run_on_the_command_line_hides_the_store_that_an_option_names(shell: Shell) -> None:
    (shell.place / "looks.py").write_text(LOOKS)
    (shell.place / "data").mkdir()
    (shell.place / "data/a").touch()
    done = shell("run", "looks.py", "data/r.txt", "--tools", "files", "--store", "sqlite:///data/r.txt", "--json")
    assert (shell.place / "data/r.txt").exists()
    root, data, store = done.json["output"]
    assert "data/a" in root.splitlines()
    assert data == "a"
    assert "it belongs to this library" in store
