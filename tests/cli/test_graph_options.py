"""`--set NAME=VALUE`: options of the function that builds a graph, stored with the run."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.exits import UsageError
from orchestrator.cli.graph_options import build, parted, with_options
from orchestrator.cli.graph_refs import module_from_name, shipped
from orchestrator.spelling import RENAMED, close_to
from tests.support.shell import Shell

MINE = """
from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Complete

class State(BaseModel):
    q: str = ""
    a: str = ""

def build(topic: str, rounds: int = 2, *, words: Collection[object] | None = None, mode: Literal["none", "b"] = "b",
          flag: bool = False, size: float | None = 1.0, untyped=3):
    facts = [topic, rounds, words, mode, flag, size, untyped]
    node = Complete(prompt=f"{facts} {{q}}".replace("[", "(").replace("]", ")"), result="a")
    return Graph(name="mine", description=repr(facts), state=State, nodes={"reply": node},
                 edges="START -> reply -> END", input="q", output="a")

def broken(): raise ValueError("no such luck")
def three(): return 3
async def later(): return build("x")
one = build("x")
"""
QUESTION = "What is 2+3*4?"


@pytest.fixture(scope="module")
def mine(shared: Shell) -> Shell:
    (shared.place / "mine.py").write_text(MINE)
    (shared.place / "essay.yaml").write_text("name: essay")
    return shared


def test_a_run_has_the_strategys_own_limit_and_keeps_it(shell: Shell) -> None:
    begun = shell("run", "tool_user", QUESTION, "--set", "max_steps=1", "--set", "confirm=none", "--run-id", "r")
    assert begun.code == 3
    done = shell("approve", "r")
    assert (done.code, done.out) == (5, "12\n")
    assert "steps=4 are spent" in done.err
    assert shell("replay", "r").code == 0
    assert "max_steps=1" in shell("export", "r").out
    whole = shell("run", "tool_user", QUESTION, "--set", "max_steps=3", "--set", "confirm=null")
    assert (whole.code, whole.out) == (0, "14\n")
    plain = shell("run", "tool_user?confirm=null&max_steps=3", QUESTION)
    assert (plain.code, plain.out) == (0, "14\n")


def test_a_run_of_a_store_from_elsewhere_goes_on_with_the_options_that_it_names(shell: Shell) -> None:
    shell("run", "tool_user", QUESTION, "--set", "max_steps=1", "--run-id", "r")
    (shell.place / ".orchestrator/runs.db").rename(shell.place / "moved.db")
    refused = shell("approve", "r", "--store", "sqlite:///moved.db")
    assert "--graph 'tool_user?max_steps=1'" in refused.err
    named = ("--graph", "tool_user?max_steps=1", "--tools", "arithmetic", "--model", "offline")
    assert shell("approve", "r", "--store", "sqlite:///moved.db", *named).out == "12\n"


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ([], ["x", 2, None, "b", False, 1.0, 3]),
        (["topic=7", "rounds=3", "untyped=9"], ["7", 3, None, "b", False, 1.0, 9]),
        (["words=a,b", "mode=none", "flag=yes", "size=null"], ["x", 2, ["a", "b"], "none", True, None, 3]),
        (["topic=None", "size=None"], ["None", 2, None, "b", False, None, 3]),
        (['words=["c","d,e"]', "flag=True", "size=2"], ["x", 2, ["c", "d,e"], "b", True, 2.0, 3]),
        (["topic=a b&c=d?%20", "words=[]"], ["a b&c=d?%20", 2, [], "b", False, 1.0, 3]),
    ],
)
def test_values_are_read_as_the_types_of_the_parameters(mine: Shell, typed: list[str], facts: list[object]) -> None:
    words = [word for one in ("topic=x", *typed) for word in ("--set", one)]
    drawn = mine("render", "mine.py:build", "--format", "yaml", *words)
    assert (drawn.code, drawn.err) == (0, "")
    assert yaml.safe_load(drawn.out)["description"] == repr(facts)
    assert mine("check", "mine.py:build", *words).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mine.py:build", "needs --set topic=VALUE"),
        ("mine.py:build --set topic=x --set round=3", "has no 'round': did you mean 'rounds'?"),
        (
            "mine.py:build --set rounds=1.5 --set flag=maybe",
            "--set flag=maybe: give a valid boolean; --set rounds=1.5:",
        ),
        ("mine.py:build --set mode=c --set topic=x", "--set mode=c: give 'none' or 'b'"),
        ("mine.py:build --set topic", "--set topic: use the form NAME=VALUE"),
        ("mine.py:build --set =3", "--set =3: use the form NAME=VALUE"),
        ("mine.py:one --set topic=x", "mine.py:FUNCTION; functions there: build, broken, three, later"),
        ("mine.py --set topic=x", "mine.py:FUNCTION; functions there: build, broken, three, later"),
        ("mine.py:broken", "cannot be built: ValueError: no such luck"),
        ("mine.py:three", "mine.py:three returned int instead of a Graph"),
        ("mine.py:three --set x=1", "has no 'x': it has no options"),
        ("mine.py:later", "later is not a Graph but a function"),
        ("essay.yaml --set x=1", "essay.yaml has no options: change the file"),
        ("tool_user --set confirm=never", "--set confirm=never: give 'none', 'read', 'write' or 'dangerous', or null"),
        ("tool_user --set max_steps=0", "max_steps must be at least 1"),
        ("tool_user --set max_steps=two", "--set max_steps=two: give a valid integer"),
        ("tool_user --set max_duration=5", "tool_user has no 'max_duration': did you mean 'max_seconds'?"),
        ("tool_user --set max_retries=5", "tool_user has no 'max_retries': did you mean 'max_steps'?"),
        ("tool_user --max-duration 5", "No such option: --max-duration: use --max-seconds"),
        ("tool_user --max-retries=5", "No such option: --max-retries: use --set max_steps=N"),
        ("tool_user --chatllm offline", "No such option: --chatllm: use --model"),
    ],
)
def test_errors_name_the_option_and_what_to_do(mine: Shell, words: str, said: str) -> None:
    done = mine("run", *words.split(), "q")
    assert said in done.err
    assert done.code == 2


def test_a_question_may_look_like_an_option_of_another_framework(mine: Shell) -> None:
    assert mine("run", "mine.py:build", "--set", "topic=x", "--", "--chatllm").code == 0


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@given(
    place=st.sampled_from(["tool_user", "/a b/mine.py:build", "pkg.mod:make", "odd?.py:graph", "mcp:x"]),
    options=st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"]))),
)
def test_a_reference_holds_every_option(place: str, options: dict[str, str]) -> None:
    ref = with_options(place, [f"{name}={value}" for name, value in options.items()])
    assert parted(ref) == (place, options)
    assert with_options(ref, None) == ref
    assert with_options(place, [f"{name}={value}" for name, value in reversed(options.items())]) == ref


@pytest.mark.parametrize("name", shipped())
def test_every_option_of_a_strategy_can_be_written(name: str) -> None:
    function = vars(module_from_name(f"orchestrator.strategies.{name}"))[name]
    for one in inspect.signature(function).parameters.values():
        default: Any = one.default
        text = default if isinstance(default, str) else json.dumps(default)
        assert vars(build(function, name, {one.name: text}))["name"] == name


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("old", RENAMED)
def test_names_of_other_frameworks_are_refused_with_the_name_here(name: str, old: str) -> None:
    function = vars(module_from_name(f"orchestrator.strategies.{name}"))[name]
    meant = close_to(old, inspect.signature(function).parameters)
    said = f"did you mean {meant!r}" if meant else "it has "
    with pytest.raises(TypeError, match=rf"{name}\(\) has no '{old}': {said}"):
        function(**{old: 1})
    with pytest.raises(UsageError, match=rf"--set {old}: {name} has no '{old}': {said}"):
        build(function, name, {old: "1"})
