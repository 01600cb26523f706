"""Commands with keys in the environment, and without them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from orchestrator.stores.codec import new_key
from tests.support.shell import Shell

APP = """
import anyio, os
from pydantic import BaseModel
from orchestrator import Graph, Update, node
from orchestrator.executor import App

class S(BaseModel):
    text: str = ""

@node
async def first(state: S) -> Update:
    return {"text": state.text + " one"}

@node
async def second(state: S) -> Update:
    if not os.path.exists("go"):
        print("second", flush=True)
        await anyio.sleep(3600)
    return {"text": state.text + " two"}

graph = Graph(
    name="slow", state=S, input="text", output="text", nodes={"first": first, "second": second},
    edges="START -> first -> second -> END",
)
app = App(graphs=[graph])

class Own:
    key_id = "own"
    def encode(self, data, *, about):
        return data[::-1]
    def decode(self, data, *, key_id, about):
        return data[::-1]
"""
KEYS = {"ORCHESTRATOR_KEYS": "k1=env:RUNS_KEY"}


@pytest.fixture
def keyed(shell: Shell) -> Shell:
    shell.place.joinpath("shop.py").write_text(APP)
    shell.env |= {**KEYS, "RUNS_KEY": new_key()}
    return shell


def stored(place: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (place / ".orchestrator").iterdir() if file.is_file())


def test_a_killed_run_continues_with_the_key(keyed: Shell) -> None:
    with keyed.begin("run", "shop:graph", "zqplanted7x", "--run-id", "r") as process:
        assert process.first_line() == "second\n"
        process.signal(signal.SIGKILL)
    assert b"zqplanted7x" not in stored(keyed.place)
    keyed.place.joinpath("go").touch()
    done = keyed("resume", "r")
    assert (done.code, "zqplanted7x one two" in done.out) == (0, True), done
    assert b"zqplanted7x" not in stored(keyed.place)


def test_commands_without_the_key_say_which_one_is_missing(keyed: Shell) -> None:
    keyed.place.joinpath("go").touch()
    assert keyed("run", "shop:graph", "tea", "--run-id", "r").code == 0
    assert keyed("runs", "--json").json[0]["output"] == "tea one two"
    assert keyed("show", "r").code == 0
    without = {"ORCHESTRATOR_KEYS": ""}
    (row,) = keyed("runs", "--json", env=without).json
    assert (row["input"], row["output"]) == ("(encrypted with key 'k1')", "")
    assert "encrypted with key" in keyed("runs", env=without).out
    for words in (("show", "r"), ("events", "r"), ("why", "r"), ("render", "r"), ("resume", "r"), ("fork", "r")):
        done = keyed(*words, env=without)
        assert done.code != 0, words
        assert "run 'r' is encrypted with key 'k1', which is missing here" in done.err, (words, done.err)
        assert "ORCHESTRATOR_KEYS=k1=env:VARIABLE" in done.err, (words, done.err)
    other = {"RUNS_KEY": new_key()}
    done = keyed("show", "r", env=other)
    assert "the key with this id is another one" in done.err
    assert other["RUNS_KEY"] not in done.err
    checked = keyed("store", "check", "--json", env=without).json
    assert not checked["ok"]
    assert any("encrypted with key 'k1'" in one["what"] for one in checked["findings"])
    assert keyed("store", "check").code == 0


def test_copies_change_keys(keyed: Shell) -> None:
    keyed.place.joinpath("go").touch()
    assert keyed("run", "shop:graph", "tea", "--run-id", "r").code == 0
    source, copy, moved = (f"sqlite:///{name}" for name in (".orchestrator/runs.db", "copy.db", "moved.db"))
    assert keyed("store", "copy", source, copy, env={"ORCHESTRATOR_KEYS": ""}).code == 0
    new = {"ORCHESTRATOR_KEYS": "k2=env:NEW_KEY, k1=env:RUNS_KEY", "NEW_KEY": new_key()}
    assert keyed("store", "copy", copy, moved, env=new).code == 0
    only = {**new, "ORCHESTRATOR_KEYS": "k2=env:NEW_KEY"}
    assert "tea one two" in keyed("show", "r", "--store", moved, env=only).out
    assert "encrypted with key 'k1'" in keyed("show", "r", "--store", copy, env=only).err


def test_a_search_says_that_it_finds_labels_only(keyed: Shell) -> None:
    keyed.place.joinpath("go").touch()
    assert keyed("run", "shop:graph", "tea", "--run-id", "r", "--label", "team=north").code == 0
    done = keyed("runs", "--search", "north", "--json")
    assert [one["run_id"] for one in done.json] == ["r"]
    assert "--search finds only the labels of encrypted runs" in done.err
    assert keyed("runs", "--search", "tea", "--json").json == []
    assert [one["run_id"] for one in keyed("runs", "--anywhere", "tea", "--json").json] == ["r"]


def test_clear_values_can_be_refused(keyed: Shell) -> None:
    keyed.place.joinpath("go").touch()
    assert keyed("run", "shop:graph", "tea", "--run-id", "clear", env={"ORCHESTRATOR_KEYS": ""}).code == 0
    assert keyed("run", "shop:graph", "tea", "--run-id", "r").code == 0
    refuse = {"ORCHESTRATOR_CLEAR_VALUES": "refuse"}
    assert "tea one two" in keyed("show", "r", env=refuse).out
    assert "the codec refuses clear values" in keyed("show", "clear", env=refuse).err
    assert "tea one two" in keyed("show", "clear").out


def test_a_codec_of_ones_own_is_named(keyed: Shell) -> None:
    keyed.place.joinpath("go").touch()
    own = {"ORCHESTRATOR_KEYS": "", "ORCHESTRATOR_CODEC": "shop:Own"}
    assert keyed("run", "shop:graph", "zqplanted7x", "--run-id", "r", env=own).code == 0
    assert b"zqplanted7x" not in stored(keyed.place)
    assert "zqplanted7x one two" in keyed("show", "r", env=own).out


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"ORCHESTRATOR_KEYS": "c2VjcmV0LWtleQ=="}, "ORCHESTRATOR_KEYS: write ID=env:VARIABLE"),
        ({"ORCHESTRATOR_KEYS": "a=env:NOT_SET"}, "the environment variable NOT_SET is not set"),
        ({"ORCHESTRATOR_KEYS": "a=env:SHORT", "SHORT": "c2VjcmV0LWtleQ=="}, "SHORT is not 32 bytes in base64"),
        ({"ORCHESTRATOR_KEYS": "a=env:X", "ORCHESTRATOR_CODEC": "shop:Own"}, "unset one of them"),
        ({"ORCHESTRATOR_CLEAR_VALUES": "perhaps"}, "use accept or refuse"),
        ({"ORCHESTRATOR_KEYS": "", "ORCHESTRATOR_CLEAR_VALUES": "refuse"}, "takes the attribute `clear`"),
        ({"ORCHESTRATOR_KEYS": "", "ORCHESTRATOR_CODEC": "shop:app"}, "it is neither a codec"),
        ({"ORCHESTRATOR_KEYS": "", "ORCHESTRATOR_CODEC": "shop"}, "use module:attr"),
    ],
)
def test_keys_that_cannot_be_used_are_usage_errors(keyed: Shell, env: dict[str, str], said: str) -> None:
    keyed.place.joinpath("go").touch()
    done = keyed("run", "shop:graph", "tea", env=env)
    assert (done.code, said in done.err) == (2, True), done.err
    assert "c2VjcmV0" not in done.err
