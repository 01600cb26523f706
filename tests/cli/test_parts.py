"""What the command line is made of, where no process is needed to see it."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli import app, options, output
from orchestrator.cli.environment import import_from
from orchestrator.cli.exits import UsageError
from orchestrator.cli.graph_refs import absolute, graph_from_ref, importing
from orchestrator.cli.output import redacted
from orchestrator.cli.report import Plain
from orchestrator.cli.run_input import input_of
from orchestrator.cli.terminal_questions import value_of
from orchestrator.errors import GraphUnknown
from orchestrator.executor import Event
from orchestrator.graph.refs import module_of_file
from orchestrator.kernel.question import Question, Value
from orchestrator.models import model_from_ref
from orchestrator.render.terminal import texts
from orchestrator.render.terminal.event_lines import question_text
from orchestrator.render.terminal.tables import Looks, run_table
from orchestrator.stores import RunInfo
from orchestrator.tools import tools_from_ref
from orchestrator.values import MAX_BYTES
from orchestrator.visible import shown as visible
from tests.support import trial


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with modules in it, of which nothing is left behind."""
    modules, path = dict(sys.modules), sys.path[:]
    (tmp_path / "mine.py").write_text(Path(trial.__file__).read_text())
    monkeypatch.chdir(tmp_path)
    import_from(str(tmp_path))
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def test_input_that_is_too_large_or_too_deep_is_refused(place: Path) -> None:
    large = place / "large.json"
    large.touch()
    os.truncate(large, MAX_BYTES + 1)
    with pytest.raises(UsageError, match=r"--input @large.json: the file has more than 67,108,864 bytes"):
        input_of(trial.number, None, "@large.json")
    for given in ("[" * 200_000, '{"a":' * 200_000):
        with pytest.raises(UsageError, match="--input is nested too deeply"):
            input_of(trial.number, None, given)


# -- modules in files -------------------------------------------------------------------------------------------


def test_a_file_is_imported_once_under_its_own_name(place: Path) -> None:
    module = module_of_file("mine.py")
    assert module.__name__ == "mine"
    assert module_of_file(str(place / "mine.py")) is module
    assert sys.path[-1] == str(place)
    from_graph = graph_from_ref("mine.py:number")
    assert from_graph is module.number
    assert list(tools_from_ref("mine.py:note")) == [module.note]
    assert model_from_ref("mine.py:model").name == "offline"


@pytest.mark.parametrize("name", ["json.py", "orchestrator.py", "two.words.py", "my-agent.py"])
def test_a_name_that_is_taken_hides_nothing(place: Path, name: str) -> None:
    (place / name).write_text("from mine import number")
    before = sys.modules["json"]
    module = module_of_file(name)
    assert module.number.name == "number"
    assert sys.modules["json"] is before
    assert sys.modules[module.__name__] is module
    assert (module.__name__ == "my-agent") == (name == "my-agent.py")


def test_a_file_that_fails_is_not_half_there(place: Path) -> None:
    (place / "torn.py").write_text("from mine import number\n1 / 0")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            module_of_file("torn.py")
    assert "torn" not in sys.modules


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("mine", "mine has several graphs; choose one: mine:waits, mine:blocks"),
        ("mine:tow", "mine has no 'tow': did you mean 'two'? graphs there: waits"),
        ("mine.py:tow", "mine.py has no 'tow': did you mean 'two'? graphs there: waits"),
        ("nosuch.py:x", "there is no file 'nosuch.py'"),
        ("nosuch.yaml", "there is no file 'nosuch.yaml'"),
        ("nosuch:x", "there is no module 'nosuch'. Shipped graphs: "),
        ("nosuch.sub:x", "there is no module 'nosuch.sub'"),
        ("json.nosuch", "it is neither a shipped graph nor a module"),
        ("json", "module json contains no graph"),
        ("tool-user", "did you mean 'tool_user'?"),
        ("", "unknown graph ''"),
        (":", "there is no module ''"),
        (".mine:x", "there is no module '.mine'"),
    ],
)
def test_graphs_that_are_not_there(place: Path, ref: str, says: str) -> None:
    with pytest.raises(GraphUnknown) as raised:
        graph_from_ref(ref)
    assert says in str(raised.value)


def test_a_function_that_returns_no_graph_is_a_usage_error(place: Path) -> None:
    with pytest.raises(UsageError, match="mine:model returned OfflineModel instead of a Graph"):
        graph_from_ref("mine:model")


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("arithmetc", "a shipped group (arithmetic, ask_human, "),
        ("json", "there is no tool in json"),
        ("mine.py:nte", "mine.py has no 'nte': did you mean 'note'? the tools there: note, mute"),
        ("mine.py:waits", "Graph is not a tool itself: use its .as_tool(name, description)"),
        ("nosuch.py", "there is no file 'nosuch.py'"),
    ],
)
def test_tools_that_are_not_there(place: Path, ref: str, says: str) -> None:
    with pytest.raises(GraphUnknown) as raised:
        tools_from_ref(ref)
    assert str(raised.value).startswith(f"tools {ref!r}: ")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("gpt-4", "Or write offline, openai:NAME (such as openai:gpt-4o-mini), responses:NAME"),
        ("openai", "model 'openai' is unknown"),
        ("openai:", "does not name a model"),
        ("nosuch:x", "there is no module 'nosuch'"),
        ("mine.py:nosuch", "mine.py has no 'nosuch'"),
        ("mine:SECRET", "is not a model but a str"),
    ],
)
def test_models_that_are_not_there(place: Path, ref: str, says: str) -> None:
    with pytest.raises(GraphUnknown) as raised:
        model_from_ref(ref)
    assert says in str(raised.value)


def test_a_module_that_cannot_be_imported_says_where(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "leaves.py").write_text("import sys\nsys.exit(3)")
    (place / "needs.py").write_text("import nosuch_at_all")
    for ref, says in (("leaves.py:x", "leaves.py cannot be imported: SystemExit: 3"), ("needs:x", "No module named")):
        with pytest.raises(UsageError, match=says):
            graph_from_ref(ref)
        assert capsys.readouterr().err.count("File ") == 1
    (place / "tells.py").write_text(f"raise ValueError('{trial.SECRET}')")
    assert app._code(lambda: 0 if graph_from_ref("tells.py:x") else 1) == 2
    said = capsys.readouterr().err
    assert trial.SECRET not in said
    assert "ValueError" in said
    with pytest.raises(GraphUnknown), importing("mine"):  # an error of ours says it all
        graph_from_ref("mine:nosuch")


@pytest.mark.parametrize(
    "text",
    [
        "", "[1]", "name: [x", "name: x\nnodes: {}", "name: x\nstate: {fields: {a: strr}}\nnodes: {}",
        "name: x\nstate: {fields: {}}\nnodes: {a: {kind: nope}}\nedges: START -> a -> END",
        "name: x\nstate: {fields: {}}\nnodes: {a: {kind: complete, prompt: hi, nope: 1}}\nedges: START -> a -> END",
    ],
)  # fmt: skip
def test_a_wrong_graph_file_names_no_line_of_python(place: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (place / "bad.yaml").write_text(text)
    assert app._code(lambda: int(graph_from_ref("bad.yaml") is None)) != 0
    said = capsys.readouterr().err
    assert said.startswith("error: bad.yaml")
    assert ".py" not in said


def test_a_reference_means_the_same_in_another_directory(place: Path) -> None:
    assert absolute("mine.py:number") == f"{place}/mine.py:number"
    assert absolute("a/b.yaml") == f"{place}/a/b.yaml"
    assert absolute("mine:number") == "mine:number"


# -- input and answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "given", "found"),
    [
        ("q", None, {"topic": "q"}),
        (None, '{"topic": "t"}', {"topic": "t"}),
        (None, '"t"', "t"),
        (None, None, None),
    ],
)
def test_input(question: str | None, given: str | None, found: object) -> None:
    assert input_of(trial.waits, question, given) == found


@pytest.mark.parametrize(
    ("question", "given", "says"),
    [
        ("q", '{"topic": "t"}', "both set 'topic', the one input of the graph: give one of them"),
        ("q", '{"count": 1}', "give one of them"),
        (None, "{", "--input is not JSON"),
        (None, "@nosuch.json", "--input @nosuch.json: "),
    ],
)
def test_input_that_cannot_be(place: Path, question: str | None, given: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        input_of(trial.waits, question, given)


def test_a_question_needs_a_field_to_fill() -> None:
    with pytest.raises(UsageError, match=r"use --input with state fields \(topic, said"):
        input_of(trial.number, "q", None)


def test_options_that_are_not_what_they_should_be() -> None:
    with pytest.raises(UsageError, match="use none, read, write or dangerous"):
        options.risk("all")
    with pytest.raises(UsageError, match="use the form K=V"):
        options.pairs(["a"])
    with pytest.raises(UsageError, match="--args is not JSON"):
        options.parse_json("{", "--args")
    assert options.pairs(["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}


@pytest.mark.parametrize(
    ("schema", "choices", "text", "value"),
    [
        (None, (), "4", "4"),
        ({"type": "integer"}, (), "4", 4),
        ({"type": "integer"}, (), "four", "four"),
        ({"type": "string"}, (), "4", "4"),
        ({"type": "integer"}, ("4",), "4", "4"),
        ({"type": "object"}, (), '{"a": 1}', {"a": 1}),
    ],
)
def test_what_was_typed_is_read_as_the_question_wants_it(
    schema: dict[str, object] | None, choices: tuple[str, ...], text: str, value: object
) -> None:
    question = Question(id="q", kind="input", node="n", schema=schema, choices=choices)
    assert value_of(question, text) == Value(value=value)


# -- what is shown ----------------------------------------------------------------------------------------------


def test_a_tool_call_is_shown_exactly() -> None:
    payload = {"tool": "rm", "args": {"path": "a\n  tool  ls\x1b[2K\u202e"}, "risk": "write", "call_id": "c"}
    shown = question_text(Question(id="q", kind="approval", node="n", path="a.1", prompt="Call rm?", payload=payload))
    assert shown.splitlines() == [
        "approval at a.1/n",
        "  | Call rm?",
        "  tool  rm",
        "  args",
        "    path  2 lines",
        "      | a",
        "      |   tool  ls\\u001b[2K\\u202e",
        '  risk  "write"',
        '  call_id  "c"',
        "  = a call of rm, risk write, with 40 characters of arguments as shown",
    ]


def test_nothing_unprintable_is_left() -> None:
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("\x1b[1m\x9b\r\u202e\u2066\x7f") == r"\u001b[1m\u009b\u000d\u202e\u2066\u007f"
    assert visible("\U000e0041") == r"\U000e0041"
    assert visible("Grüße, 世界 👋") == "Grüße, 世界 👋"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_on_stdout_says_the_same_and_commands_nothing(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": "\x1b\x9b\u202e\U000e0041 Grüße 👋", "b": ["\ud800", 1, None]}
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", file)
    output.out_json(value)
    output.out_line(value)
    text = file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert text.replace("\n", "").isprintable()
    *document, line = text.splitlines()
    assert json.loads("\n".join(document)) == json.loads(line) == value
    assert ("Grüße" in line) == (encoding == "utf-8")


def test_secrets_are_blanked_by_their_looks_and_by_their_names() -> None:
    assert redacted(
        {
            "password": "pa'ss \"word",
            "key": trial.SECRET,
            "deep": [{"api_key": "abcdef"}, "token=abcdef", 1, None],
            "token": "env:TOKEN",
            "input_tokens": 12,
            "pin": "1234",
        }
    ) == {
        "password": "[redacted]",
        "key": "[redacted]",
        "deep": [{"api_key": "[redacted]"}, "token=[redacted]", 1, None],
        "token": "env:TOKEN",
        "input_tokens": 12,
        "pin": "1234",
    }


def test_lines_of_text_blank_secrets_and_say_why_a_step_took_its_error_edge() -> None:
    said: list[str] = []
    lines = Plain(said.append)
    fault: object = {"type": "ValueError", "message": f"no {trial.SECRET} " + "x" * 1000}
    step: dict[str, object] = {"node": "work", "started": 1.0, "ended": 2.0, "outcome": "error", "error": fault}
    for event in (
        Event(type="step_done", seq=1, ts=1.0, run_id="r", data=step),
        Event(type="paused", seq=2, ts=1.0, run_id="r", data={"reason": trial.SECRET}),
        Event(type="emitted", seq=None, ts=1.0, run_id="r", data={"name": trial.SECRET}),
    ):
        lines.show(event)
    assert trial.SECRET not in "".join(said)
    assert said[0].startswith("  work -> error  ValueError: no [redacted] xxx")
    assert said[0].endswith("x…  (1.00 s)")
    assert len(said[0]) < 400


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "just now"), (5, "5 s ago"), (300, "5 min ago"), (7300, "2 h ago"), (2e5, "2 d ago")]
)
def test_ago(seconds: float, shown: str) -> None:
    assert texts.ago(1e9, now=1e9 + seconds) == shown


def test_words_come_back_from_a_shell_as_they_were(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["orchestrator"])
    made = output.shell_command("resume", "a b", "--store", "sqlite:///it's.db; rm -rf $HOME")
    assert shlex.split(made) == ["orchestrator", "resume", "a b", "--store", "sqlite:///it's.db; rm -rf $HOME"]


def test_a_name_from_a_stranger_s_store_stays_on_its_line() -> None:
    forged = RunInfo(
        run_id="r\u2028x", graph="g\nok  other  completed", status="completed", labels={"a\nb": "c\td\x1b[2J"},
        created=0.0, updated=0.0, head=1, structure="", content="",
    )  # fmt: skip
    true = replace(forged, run_id="r", graph="g", labels={})
    (_, first, second) = visible(run_table([forged, true])).split("\n")
    assert first.startswith(r"r\u2028x  g\nok  other  completed  completed")
    assert r"a\nb=c\td\u001b[2J" in first
    assert second.startswith("r  ")


def test_a_row_shows_what_fits_and_no_secret() -> None:
    info = RunInfo(
        "r", "g", "failed", {}, 0.0, 0.0, error="no key sk-ant-api03-" + "a" * 40 + " in\nthis " + "long " * 50
    )
    rows = {width: run_table([info], Looks(width), now=5.0).split("\n")[1] for width in (10, 80, 200)}
    assert all("aaaaaaaa" not in row and "\n" not in row for row in rows.values())
    assert 70 < len(rows[80]) <= 80
    assert rows[80].endswith("long…")
    assert run_table([info]).startswith("RUN  GRAPH  STATUS  CHANGED")
    assert run_table([info]).endswith("long")
    assert rows[200].startswith("r    g      failed  5 s ago  no key ")
    assert rows[10].endswith("…")
    given_up = replace(info, status="running", fault="GraphUnknown: no graph", deaths=2, retry_at=9.0)
    assert "given up 2 times: GraphUnknown" in run_table([given_up])
    assert "asks: Publish?" in run_table([replace(info, status="paused", error="", question="Publish?")])
