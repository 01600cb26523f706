"""Graphs that change under paused runs, on the command line."""

from __future__ import annotations

import re
import shlex

import anyio
import pytest

from orchestrator import Executor
from orchestrator.cli.graph_refs import graph_from_ref
from tests.support.shell import Done, Shell
from tests.support.sizes import sized

MODULE = """
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, append, node
from orchestrator.graph import Migration
from orchestrator.nodes import Confirm


class Order(BaseModel):
    item: str = ""
    {field}
    log: Annotated[list[str], append] = []


@node
async def price(state: Order):
    return {{"log": "priced"{price}}}


@node
async def ship(state: Order):
    return {{"log": "shipped"}}


graph = Graph(name="order", state=Order, input="item",
              nodes={{"price": price, "{ask}": Confirm(prompt="Order?"), "ship": ship}},
              edges="START -> price -> {ask}\\n{ask} -> ship : approved\\n{ask} -> END : denied\\nship -> END",
              output="log")
double = Migration(nodes={{"ask": "{ask}"}}, state={{"cents": lambda old: old["price"] * 100}})
values = lambda old: {{"cents": old["price"] * 100}}
number = 3
"""
OLD = MODULE.format(field="price: int = 0", price=', "price": 7', ask="ask")
NEW = MODULE.format(field="cents: int = 0", price=', "cents": 700', ask="confirm")


@pytest.fixture
def paused(shell: Shell) -> Shell:
    """A run `r` that waits in the old version, where the new one is now."""
    (shell.place / "old.py").write_text(OLD)
    (shell.place / "new.py").write_text(NEW)
    assert shell("run", "old:graph", "tea", "--run-id", "r").code == 3
    return shell


def test_a_refused_run_has_a_command_that_works_when_it_is_pasted(paused: Shell) -> None:
    done = paused("resume", "r", "--graph", "new:graph")
    assert done.code == 1
    assert "  - migration: node 'ask' is gone, and the run is at it" in done.err
    assert "  - migration: state field 'price' is gone, and has a value" in done.err
    assert "--rename ask=confirm --rename state.price=cents" in done.command
    again = paused.go_on(done)
    assert again.code == 3, again.err
    assert paused("show", "r", "--json").json["state"]["cents"] == 7
    assert paused(*paused.pasted(again.command)).code == 0


def test_a_migration_is_taken_from_a_module_and_by_options(paused: Shell) -> None:
    done = paused("resume", "r", "--graph", "new:graph", "--migrate", "new:double", "--drop", "state.price")
    assert done.code == 3, done.err
    assert paused("show", "r", "--json").json["state"]["cents"] == 700
    types = [line["type"] for line in paused("events", "r", "--json").lines if "type" in line]
    assert types.count("migrated") == 1


def test_a_function_of_the_state_is_a_migration(paused: Shell) -> None:
    done = paused("resume", "r", "--graph", "new:graph", "--rename", "ask=confirm", "--migrate", "new:values")
    assert done.code == 3, done.err
    assert paused("show", "r", "--json").json["state"]["cents"] == 700


@pytest.mark.parametrize(
    ("options", "code", "fault"),
    [
        (("--rename", "ask"), 2, "--rename ask: use the form OLD=NEW"),
        (("--set", "cents"), 2, "--set cents: use the form FIELD=JSON"),
        (("--set", "cents=x"), 2, "--set cents is not JSON"),
        (("--migrate", "new"), 2, "--migrate new: use module:attr"),
        (("--migrate", "new:number"), 2, "it is a int, not a Migration"),
        (("--migrate", "nowhere:x"), 2, "nowhere"),
        (("--migrate", "new:values", "--set", "cents=1"), 2, "--migrate names a function of the state"),
        (("--rename", "asks=confirm"), 1, "the run's graph has no node 'asks'"),
        (("--rename", "ask=confirm", "--set", 'cents="x"'), 1, "field 'cents'"),
        (("--accept-changes",), 1, "migration: node 'ask' is gone"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    paused: Shell, options: tuple[str, ...], code: int, fault: str
) -> None:
    before = paused("show", "r", "--json").json
    done = paused("resume", "r", "--graph", "new:graph", *options)
    assert (done.code, fault in done.err) == (code, True), done.err
    assert paused("show", "r", "--json").json == before


@pytest.mark.full
def test_check_lists_the_runs_that_a_new_version_would_refuse(paused: Shell) -> None:
    assert paused("run", "old:graph", "cake", "--run-id", "s", "--approve", "dangerous").code == 3
    assert paused("approve", "s").code == 0  # it has ended, so no version matters to it
    same = paused("check", "old:graph", "--against", "runs")
    assert (same.code, "0 of 1 runs would be refused" in same.out) == (0, True)
    done = paused("check", "new:graph", "--against", "runs")
    assert done.code == 1
    assert "  1 of 1 runs would be refused\n  migration  r  paused at ask\n" in done.out
    (command,) = [line.partition(": ")[2] for line in done.out.splitlines() if "to continue it" in line]
    data = paused("check", "new:graph", "--against", "sqlite:///.orchestrator/runs.db", "--json").json
    assert (data["ok"], data["runs"], len(data["refused"])) == (True, 1, 1)
    assert data["refused"][0]["grade"] == "migration"
    assert paused("show", "r", "--json").json["status"] == "paused"
    assert paused.typed(command).code == 3
    assert paused("check", "new:graph", "--against", "runs").code == 0


def test_check_against_no_store_and_no_url(shell: Shell) -> None:
    (shell.place / "new.py").write_text(NEW)
    assert shell("check", "new:graph", "--against", "runs").code == 0
    done = shell("check", "new:graph", "--against", "nothing")
    assert (done.code, "--against nothing: use runs, or the URL of a store" in done.err) == (2, True)


def printed(done: Done) -> list[str]:
    """The commands that a command printed to go on."""
    return re.findall(r"^ *(\S.* -m orchestrator (?!explain ).*)$", done.out + done.err, re.M)


@pytest.mark.full
def test_every_command_that_is_printed_after_a_migration_leads_to_the_new_graph(paused: Shell) -> None:
    moved = paused("resume", "r", "--graph", "new:graph", "--rename", "ask=confirm", "--rename", "state.price=cents")
    for place, done in enumerate((moved, paused("resume", "r"), paused("show", "r"))):
        (command,) = printed(done)
        fork = f"f{place}"  # a run has one answer, so each command answers a fork
        assert paused("fork", "r", "--run-id", fork, "--no-start").code == 0
        end = paused(*(fork if word == "r" else word for word in shlex.split(command)[3:]))
        assert (end.code, end.json) == (0, ["priced", "shipped"]), end.err
    kept = paused("approve", "r", "--no-resume")
    assert "is answered; to continue" in kept.err
    assert paused.go_on(kept).json == ["priced", "shipped"]


def test_code_that_is_named_with_an_answer_is_in_the_command_that_continues(paused: Shell) -> None:
    kept = paused("approve", "r", "--no-resume", "--graph", "old:graph", "--model", "offline")
    (command,) = printed(kept)
    assert command.endswith("resume r --graph old:graph --model offline")
    assert paused.go_on(kept).json == ["priced", "shipped"]


@pytest.mark.full
def test_recover_and_forks_find_the_graph_that_a_run_has_at_that_record(paused: Shell) -> None:
    paused("resume", "r", "--graph", "new:graph", "--rename", "ask=confirm", "--rename", "state.price=cents")
    assert paused("approve", "r", "--no-resume").code == 0
    assert paused("recover", "--json").json[0]["output"] == ["priced", "shipped"]
    early = paused("fork", "r", "--at", 3, "--run-id", "early")
    assert early.code == 3, early.err
    assert paused("show", "early", "--json").json["state"]["price"] == 7
    assert paused.go_on(early).json == ["priced", "shipped"]


def test_a_run_from_elsewhere_finds_its_code_once_a_command_has_named_it(paused: Shell) -> None:
    file = paused.place / "r.jsonl"
    assert paused("export", "r", "-o", file).code == 0
    other = ("--store", f"sqlite:///{paused.place}/other.db")
    assert paused("import", file, *other).code == 0
    refused = paused("resume", "r", *other)
    assert (refused.code, "its references are not followed" in refused.err) == (2, True)
    named = ("--graph", "old:graph", "--tools", "arithmetic", "--model", "offline")
    assert paused("resume", "r", *named, *other).code == 3
    assert paused("approve", "r", *other).json == ["priced", "shipped"]


def test_references_in_a_record_that_this_user_did_not_seal_are_not_followed(paused: Shell) -> None:
    (paused.place / "evil.py").write_text(f"open('imported', 'w')\n{OLD}")

    async def forge() -> None:
        async with Executor(
            f"sqlite:///{paused.place}/.orchestrator/runs.db",
            refs=lambda _root, _graph, has: {**has, "graph": "evil:graph"},
            graphs=[graph_from_ref("old:graph", str(paused.place))],
        ) as executor:
            await executor.resume("r")

    anyio.run(forge)
    done = paused("resume", "r")
    assert (done.code, "its references are not followed" in done.err) == (2, True), done.err
    assert not (paused.place / "imported").exists()
    assert paused("resume", "r", "--graph", "old:graph", "--tools", "arithmetic", "--model", "offline").code == 3
    assert paused("approve", "r").code == 0


MANY = NEW.replace("cents: int = 0", "cents: int = 0\n    euros: int = 0")


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        ("--graph", "new:graph"),
        ("--graph", "new:graph", "--at", "2", "--run-id", "f", "--label", "a=b c"),
        ("--graph", "new:graph", "--no-start", "--set", 'item="milk"'),
        ("--graph", "new:graph", "--rename", "ask=confirm"),
        (),
    ],
)
def test_a_refused_fork_leaves_a_command_that_works_when_it_is_pasted(paused: Shell, options: tuple[str, ...]) -> None:
    run = paused if options else paused.process
    if not options:  # the file of its graph changed in place, and this process has imported it
        (paused.place / "old.py").write_text(NEW)
    done = run("fork", "r", *options)
    assert done.code == 1
    command = printed(done)[-1]
    assert "--rename ask=confirm --rename state.price=cents" in command
    assert "This is a guess, check it first:" in done.err
    again = run(*paused.pasted(command))
    assert again.code == (0 if "--no-start" in options else 3), again.err
    fork = next(one for one in paused("runs", "--json").json if one["run_id"] != "r")
    shown = paused("show", fork["run_id"], "--json").json
    assert shown["state"]["cents"] == (7 if "price" in str(shown["history"]) else 0)
    if "--label" in options:
        assert (fork["run_id"], fork["labels"]) == ("f", {"a": "b c"})
    if "--set" in options:
        assert shown["state"]["item"] == "milk"
    assert run("resume", fork["run_id"]).code == 3
    assert run("approve", fork["run_id"]).json == ["priced", "shipped"]
    assert paused("show", "r", "--json").json["state"]["price"] == 7, "the parent stays as it is"


def test_a_fork_sets_fields_that_only_the_new_version_has(paused: Shell) -> None:
    words = ("fork", "r", "--graph", "new:graph", "--rename", "ask=confirm", "--drop", "state.price", "--run-id", "f")
    assert paused(*words, "--set", "cents=900", "--set", 'item="milk"').code == 3
    state = paused("show", "f", "--json").json["state"]
    assert (state["cents"], state["item"]) == (900, "milk")


@pytest.mark.full
def test_where_several_fields_may_be_meant_the_choice_is_named_and_no_command(paused: Shell) -> None:
    (paused.place / "many.py").write_text(MANY)
    for words in (("resume", "r", "--graph", "many:graph"), ("fork", "r", "--graph", "many:graph")):
        done = paused(*words)
        assert (done.code, printed(done)) == (1, [])
        assert (
            "State field 'price' may have become 'cents' or 'euros': name one with --rename state.price=NEW" in done.err
        )
    checked = paused("check", "many:graph", "--against", "runs")
    assert (checked.code, printed(checked)) == (1, [])
    assert "state field price may have become cents or euros" in checked.out
    (row,) = paused("check", "many:graph", "--against", "runs", "--json").json["refused"]
    assert (row["command"], row["undecided"]) == (None, {"price": ["cents", "euros"]})
    named = paused("resume", "r", "--graph", "many:graph", "--rename", "state.price=euros")
    assert "became 'euros'" not in named.err, "what a user said is no guess"
    assert paused.go_on(named).code == 3
    assert paused("show", "r", "--json").json["state"]["euros"] == 7


def test_a_suggestion_says_what_it_guesses(paused: Shell) -> None:
    guesses = ["node 'ask' became 'confirm'", "state field 'price' became 'cents'"]
    for done in (paused("resume", "r", "--graph", "new:graph"), paused("check", "new:graph", "--against", "runs")):
        text = (done.err or done.out).partition("a guess, check it first:\n")[2]
        assert [line.strip().removeprefix("- ") for line in text.splitlines()][:2] == guesses
    assert paused("check", "new:graph", "--against", "runs", "--json").json["refused"][0]["guesses"] == guesses


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ("resume", "r", "--graph", "new:graph"),
        ("approve", "r", "--graph", "new:graph"),
        ("resume", "--all", "--status", "paused", "--graph", "new:graph"),
        ("fork", "r", "--graph", "new:graph"),
        ("replay", "r", "--graph", "tool_user"),
        ("resume", "done"),
        ("fork", "done"),
        ("resume", "stopped"),
        ("resume", "spent"),
        ("resume", "spent", "--retry"),
        ("cancel", "done"),
        ("resume", "nosuch"),
    ][:: sized(3, 1)],
)
def test_no_error_of_the_command_line_names_a_call_of_python(ended: Shell, words: tuple[str, ...]) -> None:
    store = ("--store", "sqlite:///.orchestrator/runs.db")
    done = ended(*words, *store)
    assert done.code in (1, 2, 4)
    assert not re.search(r"\w\(\w|\w=(\.\.\.|\[|None|True)|Executor", done.err), done.err
    for command in re.findall(r"`(.+? -m orchestrator .+?)`", done.err):
        again = ended.typed(command.replace("--max-steps N", "--max-steps 9"))
        assert again.code in (0, 3), (command, again.err)


@pytest.fixture
def ended(paused: Shell) -> Shell:
    """The same, with runs that ended in three ways."""
    for name in ("done", "stopped"):
        assert paused("run", "old:graph", "tea", "--run-id", name).code == 3
    assert paused("approve", "done").code == 0
    assert paused("cancel", "stopped").code == 0
    assert paused("run", "old:graph", "tea", "--run-id", "spent", "--max-steps", "1").code == 5
    return paused


FORKS = """
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, append, node
from orchestrator.nodes import Confirm


class State(BaseModel):
    log: Annotated[list[str], append] = []


def says(word):
    @node
    async def say(state: State):
        return {{"log": word}}

    return say


graph = Graph(name="forking", state=State, output="log", edges={edges!r},
              nodes={{name: says(name) for name in {names}}} | {{"ask": Confirm(prompt="Well?")}})
"""


def test_branches_under_way_are_given_another_fork_on_the_command_line(shell: Shell) -> None:
    behind = "ask -> END\nb -> END"
    old = FORKS.format(edges=f"START -> plan -> ask, b\n{behind}", names=["plan", "b"])
    new = FORKS.format(edges=f"START -> plan -> split -> ask, b\n{behind}", names=["plan", "split", "b"])
    (shell.place / "forks_before.py").write_text(old)
    (shell.place / "forks_after.py").write_text(new)
    assert shell("run", "forks_before:graph", "--run-id", "r").code == 3
    refused = shell("resume", "r", "--graph", "forks_after:graph")
    assert refused.code == 1, "the fork of the open branches does not fork any more"
    done = shell("resume", "r", "--graph", "forks_after:graph", "--rename", "fork.plan=split")
    assert done.code == 3, done.err
    assert shell("approve", "r").code == 0
    assert shell("show", "r", "--json").json["output"] == ["plan", "b"]
