"""`orchestrator eval`."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest

from orchestrator.kernel.records import EffectIntended, EffectSettled
from orchestrator.stores import open_store
from orchestrator.stores.requests import RunQuery
from tests.evaluation import graphs
from tests.support.shell import Shell
from tests.support.sizes import sized
from tests.support.wire import Seen, said, served

MODEL = """
from orchestrator.errors import ModelUnavailable
from orchestrator.models.offline.simulated import SimulatedModel
from orchestrator.models.prices import Price

def good():
    return SimulatedModel(0, price=Price(input=1000, output=1000))

def bad():
    return SimulatedModel(1)

class Unpriced(SimulatedModel):
    def __init__(self):
        super().__init__(0)
        self.price = None

def never(case):
    return 0.0

def raising(case):
    return case.row.nothing

class Down(SimulatedModel):
    def __init__(self):
        super().__init__(0)

    async def respond(self, request):
        raise ModelUnavailable("down for maintenance")
"""


@pytest.fixture
def place(shell: Shell) -> Shell:
    (shell.place / "own.py").write_text(MODEL)
    rows = [{"id": f"r{at}", "question": f"What is {at}+{at}?", "expected": str(2 * at)} for at in range(2, 6)]
    (shell.place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return shell


ARGS = ("--scorer", "number", "--approve", "none")


def test_a_table_json_reports_and_the_required_accuracy(place: Shell) -> None:
    models = ("--model", "good=own.py:good", "--model", "bad=own.py:bad")
    text, again, low, other, near = place.all(
        ("eval", "rows.jsonl", "rewoo", *ARGS, *models, "--junit", "out.xml", "--svg", "out.svg"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, *models, "--json"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, *models, "--require", "rewoo good=0.9", "--require", "0.5"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, *models, "--require", "rewoo good=0.9", "--require", "none=0.1"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, *models, "--name", "near", "--require", "rewoo godo=0.9"),
    )
    assert text.code == 0, text.err
    head, good, bad, *_ = text.out.splitlines()
    assert head.split()[:3] == ["VARIANT", "ACCURACY", "95"]
    assert (good.split()[:3], bad.split()[:3]) == (["rewoo", "good", "100.0%"], ["rewoo", "bad", "0.0%"])
    assert "simulated" in text.out
    wrong = again.json["wrong"][0]
    assert (wrong["row"], wrong["variant"], wrong["line"]) == ("r2", "rewoo bad", 1)
    assert wrong["run_id"] in text.out
    assert again.json["taken"] == again.json["done"] == 8
    assert place("show", wrong["run_id"]).code == 0
    suites = ET.parse(place.place / "out.xml").getroot().findall("testsuite")
    assert [one.get("failures") for one in suites] == ["0", "4"]
    assert (place.place / "out.svg").read_text().startswith("<svg")
    assert (low.code, other.code, near.code) == (1, 2, 2)
    assert "--require: rewoo bad: 0.0% is below 50.0%" in low.err
    assert "--require none=...: there is no such variant; there are 'rewoo good', 'rewoo bad'" in other.err
    assert "did you mean 'rewoo good'?" in near.err
    assert place("runs", "--label", "evaluation=near", "--json").json == []


def test_what_cannot_be_used_is_said_at_once(place: Shell) -> None:
    (place.place / "bad.jsonl").write_text('{"question": "1+1"}\n{"id"\n')
    bad, none, scorer, judge, price, require, file = place.all(
        ("eval", "bad.jsonl", "rewoo", *ARGS),
        ("eval", "none.jsonl", "rewoo", *ARGS),
        ("eval", "rows.jsonl", "rewoo", "--scorer", "exakt"),
        ("eval", "rows.jsonl", "rewoo", "--scorer", "judge:nothing"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, "--model", "own.py:Unpriced", "--budget", "1"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, "--require", "80%"),
        ("eval", "rows.jsonl", "rewoo", *ARGS, "--junit", "nowhere/out.xml"),
    )
    assert {one.code for one in (bad, none, scorer, judge, price, require, file)} == {2}
    assert "--junit nowhere/out.xml: give a file in a directory that exists" in file.err
    assert "line 1: it has no expected answer" in bad.err
    assert "line 2: it is not JSON" in bad.err
    assert "there is no such file" in none.err
    assert "did you mean 'exact'" in scorer.err
    assert "is unknown" in price.err
    assert "use a share from 0 to 1" in require.err
    assert place("runs", "--json").json == {"runs": [], "cursor": None} or "no runs" in place("runs").err


def test_a_budget_and_a_scorer_of_ones_own(place: Shell) -> None:
    spent = place("eval", "rows.jsonl", "rewoo", *ARGS, "--model", "own.py:good", "--budget", "0.05")
    assert spent.code == 5, spent.err
    assert "stopped: the next call may cost " in spent.out
    assert " of 0.05 is left: raise the budget, or bound the reply with `max_tokens`" in spent.out
    more = place("eval", "rows.jsonl", "rewoo", *ARGS, "--model", "own.py:good", "--budget", "100", "--json")
    assert (more.code, more.json["stopped"], more.json["done"]) == (0, "", 4)
    own = place("eval", "rows.jsonl", "rewoo", "--scorer", "own.py:never", "--approve", "none", "--json")
    assert own.json["variants"][0]["accuracy"] == 0
    assert own.json["scorers"] == ["never"]
    raising = place("eval", "rows.jsonl", "rewoo", "--scorer", "own.py:raising", "--approve", "none")
    assert raising.code == 0, raising.err
    assert "scorer 'raising' failed at row 'r" in raising.out  # the one that ends first
    assert "AttributeError" in raising.out


def test_a_model_that_is_down_has_an_exit_code_of_its_own(place: Shell) -> None:
    down = place(
        "eval", "rows.jsonl", "rewoo", *ARGS, "--model", "own.py:Down", "--repeat", "3", "--concurrency", "1",
        "--require", "0.8",
    )  # fmt: skip
    assert down.code == 8, down.err
    assert "stopped: 5 cases in a row were interrupted, the last one by this: " in down.out
    assert "down for maintenance" in down.out


async def _settled(url: str) -> tuple[Counter[str], int]:
    """Return the prompts of all settled model calls in a store, and the number of its runs."""
    store, found, cursor, runs = open_store(url), Counter[str](), None, 0
    try:
        while True:
            page = await store.runs(RunQuery(limit=200, after=cursor))
            for info in page.runs:
                runs += 1
                asked: dict[str, str] = {}
                for record in await store.read(info.run_id):
                    if isinstance(record, EffectIntended) and record.kind == "model":
                        asked[record.key] = json.dumps(record.request)
                    elif isinstance(record, EffectSettled) and record.ok and record.key in asked:
                        found[record.key] += 1
            cursor = page.cursor
            if cursor is None:
                return found, runs
    finally:
        await store.close()


def _answer(seen: Seen) -> dict[str, object]:
    text = str(seen.body["messages"][-1]["content"])
    return said(text.split()[-1], usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})


def test_killed_twice_it_continues_and_pays_no_settled_call_twice(shell: Shell) -> None:
    shutil.copy(Path(graphs.__file__), shell.place / "own_graphs.py")
    count = sized(20, 200)
    rows = [{"id": f"r{at}", "question": f"q{at}", "expected": f"q{at}"} for at in range(count)]
    (shell.place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = [f"own_graphs.py:{name}" for name in ("direct", "refined", "voted", "checked")]
    words = ("eval", "rows.jsonl", *names, "--model", "openai:m", "--concurrency", "4", "--json")
    url, calls = f"sqlite:///{shell.place}/.orchestrator/runs.db", count * (1 + 2 + 2 + 2)
    with served(_answer) as wire:
        env = {"OPENAI_BASE_URL": wire.url, "OPENAI_API_KEY": "none"}
        lost = 0
        for part in (1, 2):
            with shell.begin(*words, env=env) as process:
                shell.until(lambda part=part: len(wire.seen) >= calls * part // 3)
                process.signal(signal.SIGKILL)
                process.wait()
            seen = len(wire.seen)
            settled, _ = anyio.run(_settled, url)
            assert sum(settled.values()) == len(settled)
            lost = seen - len(settled)  # calls in progress when the process died
            assert 0 <= lost <= 2 * 8 * part
        done = shell.process(*words, env=env)
        assert done.code == 0, done.err
        found = done.json
        assert [one["accuracy"] for one in found["variants"]] == [1.0] * 4
        assert (found["done"], found["cases"]) == (4 * count, 4 * count)
        assert found["taken"] > 0
        # Each call once, and again only those whose result died with the process.
        assert len(wire.seen) == calls + lost
        settled, runs = anyio.run(_settled, url)
        assert (len(settled), runs) == (calls, 4 * count)
        again = shell.process(*words, env=env)
        assert (len(wire.seen), again.json["taken"]) == (calls + lost, 4 * count)


def test_recorded_runs_are_data_and_are_replayed_with_another_graph(shell: Shell) -> None:
    shutil.copy(Path(graphs.__file__), shell.place / "own_graphs.py")
    (shell.place / "own.py").write_text(
        "from own_graphs import Counted, direct\n\ndef now():\n    return direct('Please:', 'direct')\n\n"
        "def then():\n    return direct()\n\ndef model():\n    return Counted(wrong='q2')\n\n"
        "def good():\n    return Counted()\n"
    )
    for at in range(4):
        ran = shell("run", "own.py:then", f"q{at}", "--model", "own.py:good", "--run-id", f"run-{at}")
        assert ran.code == 0, ran.err
    shell("note", "run-2", "--score", "1")
    replay = ("eval", "runs:direct", "own.py:now", "--replay", "--model", "own.py:model")
    text, data, low = shell.all(replay, (*replay, "--json"), (*replay, "--require", "0.9"))
    assert text.code == 0, text.err
    assert "4 runs of direct, replayed with direct: 3 answers stayed, 1 changed" in text.out
    assert "of 1 answers that people kept 0 stayed" in text.out
    assert "paid in all: 4 calls" in text.out
    assert [one["run_id"] for one in data.json["changed"]] == ["run-2"]
    assert (low.code, "0.0% of the answers stayed" in low.err) == (1, True)
    rows = shell("eval", "runs", "own.py:now", "--model", "own.py:good", "--limit", "3", "--json")
    assert (rows.json["cases"], rows.json["variants"][0]["accuracy"]) == (3, 1.0)
    assert shell("eval", "arithmetic", "own.py:now", "--replay").code == 2
    for more in (("--junit", "x.xml"), ("--require", "direct=0.9"), ("--repeat", "2"), ("--retry",)):
        refused = shell(*replay, *more)
        assert (refused.code, "is not for --replay" in refused.err) == (2, True)
    none = shell("eval", "runs:nobody", "own.py:now", "--replay", "--model", "own.py:model", "--require", "0.9")
    assert (none.code, "'runs of nobody' has no completed runs" in none.err) == (2, True)
    assert shell("eval", "runs", "own.py:now", "rewoo", "--replay").code == 2
