"""Commands that look: at runs, graphs and tools. None of them needs a key, or the code of a run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import anyio
import pytest

from orchestrator import redaction
from tests.cli.test_run import RESULT
from tests.render.html.talks import run_shortened
from tests.support.shell import Shell
from tests.support.sizes import FULL
from tests.support.trial import SECRET

ASK = {
    "name": "hello",
    "state": {"name": "Hello", "fields": {"who": {"type": "str"}, "reply": {"type": "str", "default": ""}}},
    "input": "who",
    "nodes": {"ask": {"kind": "ask", "prompt": "Who are you, {who}?", "show": ["who"]}},
    "edges": "START -> ask -> END",
    "output": "reply",
}


@pytest.fixture(scope="module")
def ran(shared: Shell) -> Shell:
    """A place with runs in it, whose code is gone."""
    shared("run", "trial:writer", "x", "--run-id", "writer", "--tools", "trial", "--label", "user=ann")
    shared.all(
        ("run", "trial:two", "roses", "--run-id", "two", "--label", "user=ann"),
        ("run", "trial:bad", "x", "--run-id", "bad", "--label", "user=bob"),
        ("approve", "writer"),
    )
    (shared.place / "trial.py").unlink()
    return shared


def test_runs_are_listed_and_filtered(ran: Shell) -> None:
    everything, filtered, table = ran.look(
        ("runs", "--json"),
        ("runs", "--json", "--status", "completed", "--graph", "writer", "--label", "user=ann"),
        ("runs", "--limit", 2),
    )
    assert [row["run_id"] for row in everything.json][-1] == "writer"
    assert {row["run_id"] for row in everything.json} == {"two", "bad", "writer"}
    assert [row["run_id"] for row in filtered.json] == ["writer"]
    assert set(everything.json[0]) == {
        "run_id", "graph", "status", "labels", "created", "updated", "head", "waiting", "due", "input", "output",
        "question", "error", "steps", "tokens", "cost", "seconds", "usage", "parent", "diverged", "deaths", "retry_at",
        "fault", "driver", "archived",
    }  # fmt: skip
    assert len(table.out.splitlines()) == 3
    oldest, by_status, unknown, both = ran.look(
        ("runs", "--json", "--ascending"),
        ("runs", "--json", "--sort", "status", "--ascending"),
        ("runs", "--sort", "costs"),
        ("runs", "--anywhere", "x", "--sort", "cost"),
    )
    assert [row["run_id"] for row in oldest.json] == [row["run_id"] for row in reversed(everything.json)]
    assert [row["status"] for row in by_status.json] == sorted(row["status"] for row in everything.json)
    assert (unknown.code, "did you mean cost?" in unknown.err) == (2, True)
    assert (both.code, "use --search with --sort" in both.err) == (2, True)
    assert "user=ann" in next(line for line in table.out.splitlines() if line.startswith("two"))


def test_what_was_replaced_in_a_conversation_is_said(ran: Shell) -> None:
    url = f"sqlite:///{ran.place}/long.db"
    anyio.run(run_shortened, url)
    (shown,) = ran.look(("show", "shortened", "--store", url))
    assert "1 call, 920 tokens, 600 cached, 0.0040 saved by the provider's cache, " in shown.out
    assert "  replaced  results of tools, 9 so far; --at 1 has them\n" in shown.out
    assert "  replaced  22 messages; --at 4 has them: 'All files say <b>lorem</b>.'\n" in shown.out
    (before,) = ran.look(("show", "shortened", "--at", 4, "--json", "--store", url))
    assert len(before.json["state"]["messages"]) == 25


def test_what_runs_spent_is_shown_in_groups_and_failed_tools_and_prompts_lead_to_runs(ran: Shell) -> None:
    table, rows, label, odd, tools, anywhere, both = ran.look(
        ("stats", "--by", "graph"),
        ("stats", "--by", "graph", "--json"),
        ("stats", "--by", "label:user", "--label", "user=bob", "--since", "1d", "--json"),
        ("stats", "--by", "hour"),
        ("runs", "--failed-tool", "*", "--json"),
        ("runs", "--anywhere", "ROSES", "--json"),
        ("runs", "--anywhere", "roses", "--search", "roses"),
    )
    assert [line.split()[0] for line in table.out.splitlines()] == ["GRAPH", "bad", "two", "writer"]
    assert [(row["group"]["graph"], row["runs"], row["uncounted"]) for row in rows.json] == [
        ("bad", 1, 0), ("two", 1, 0), ("writer", 1, 0),
    ]  # fmt: skip
    assert (rows.json[0]["failed_rate"], rows.json[2]["tool_calls"]) == (1.0, 1)
    assert [(row["group"], row["runs"]) for row in label.json] == [({"label:user": "bob"}, 1)]
    assert (odd.code, "by 'hour': use day, graph" in odd.err) == (2, True)
    assert tools.json == []
    assert [row["run_id"] for row in anywhere.json] == ["two"]
    assert (both.code, "use one of them" in both.err) == (2, True)


def test_runs_say_what_happened_and_are_found_by_it(ran: Shell) -> None:
    failed, waiting, found, nothing, table, since = ran.look(
        ("runs", "--failed", "--json"),
        ("runs", "--waiting"),
        ("runs", "--search", "Roses", "--json"),
        ("runs", "--search", "violets"),
        ("runs",),
        ("runs", "--since", "1h", "--graph", "bad", "--json"),
    )
    (bad,) = failed.json
    assert (bad["run_id"], bad["parent"], bad["deaths"], bad["retry_at"]) == ("bad", None, 0, None)
    assert bad["error"]
    assert bad["usage"]["steps"] == bad["steps"]
    assert [row["run_id"] for row in found.json] == ["two"]
    assert [row["run_id"] for row in since.json] == ["bad"]
    assert (nothing.out, nothing.code) == ("", 0)
    assert waiting.out.splitlines()[1].startswith("two ")
    assert "asks: " in waiting.out
    lines = {line.split()[0]: line for line in table.out.splitlines()}
    assert bad["error"].split(":")[0] in lines["bad"]
    assert table.out.split()[:4] == ["RUN", "GRAPH", "STATUS", "CHANGED"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--status", "complete"), "did you mean completed?"),
        (("--status", ""), "use one of running"),
        (("--failed", "--waiting"), "--failed and --waiting: use one of them"),
        (("--status", "paused", "--failed"), "use one of them"),
        (("--since", "soon"), "--since soon: use an age"),
    ],
)
def test_filters_that_mean_nothing_are_refused(ran: Shell, options: tuple[str, ...], said: str) -> None:
    refused = ran("runs", *options)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err


def test_a_run_is_shown_as_it_was_at_a_record(ran: Shell) -> None:
    end, then, text, unknown = ran.look(
        ("show", "writer", "--json"),
        ("show", "writer", "--json", "--at", 3),
        ("show", "writer"),
        ("show", "nosuch"),
    )
    assert set(end.json) == RESULT | {"why", "untaken", "approvals", "state", "branches", "history", "notes"}
    assert end.json["status"] == "completed"
    assert [step["node"] for step in end.json["history"]] == ["nasty", "confirm", "writes"]
    assert set(end.json["history"][0]) == {"seq", "path", "node", "outcome", "update", "started", "ended"}
    assert (then.json["status"], then.json["seq"], then.json["output"]) == ("paused", 3, None)
    assert [step["node"] for step in then.json["history"]] == ["nasty"]
    assert then.json["waiting"][0]["payload"]["tool"] == "note"
    assert then.json["branches"][0]["node"] == "confirm"
    assert "confirm -> approved" in text.out
    lines = text.out.splitlines()
    assert lines[1:3] == ["question", "  | x"]
    assert lines[3] == "answer"
    assert lines.index("answer") < lines.index("history") < lines.index("state")
    assert (unknown.code, unknown.out) == (4, "")


VIEWS = [("show", "writer"), ("show", "writer", "--json"), ("events", "writer"), ("show", "bad"), ("events", "bad")]


@pytest.mark.parametrize("words", VIEWS)
def test_secrets_are_blanked_and_a_terminal_is_not_commanded(ran: Shell, words: tuple[str, ...]) -> None:
    ran.look(*VIEWS)
    (done,) = ran.look(words)
    assert done.code == 0
    assert SECRET not in done.out
    assert "hunter22" not in done.out
    assert "pa'ss word" not in done.out
    assert "[redacted]" in done.out
    assert done.out.replace("\n", "").isprintable()
    if words == ("show", "writer", "--json"):
        assert done.json["state"]["notes"] == {"password": "[redacted]"}


def test_own_patterns_are_blanked_by_every_command_that_shows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_own", [])
    env = {"ORCHESTRATOR_REDACT": "ACME-[0-9]+\n\n(?<=pin )[0-9]{4}\n"}
    began = shell("run", "trial:writer", "ACME-77 and pin 1234", "--run-id", "w", "--tools", "trial", env=env)
    views = [
        ("show", "w"), ("show", "w", "--json"), ("events", "w"), ("events", "w", "--json"), ("runs", "--json"),
        ("why", "w"), ("export", "w", "--redact"), *(("render", "w", "--format", form) for form in ("html", "svg")),
    ]  # fmt: skip
    for done in (began, *shell.all(*views, env=env)):
        assert done.code in (0, 3), done.err
        assert "ACME-77" not in done.out + done.err
        assert "pin 1234" not in done.out + done.err
    assert "[redacted] and pin [redacted]" in shell("show", "w", env=env).out


@pytest.mark.parametrize("pattern", ["(", "a*"])
def test_an_own_pattern_that_cannot_be_used_ends_the_command(
    shell: Shell, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_own", [])
    done = shell("runs", env={"ORCHESTRATOR_REDACT": pattern})
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: ORCHESTRATOR_REDACT: the pattern {pattern!r}")


def test_what_a_run_asks_or_why_it_failed_stands_above_what_it_did(ran: Shell) -> None:
    asks, failed = ran.look(("show", "two"), ("show", "bad"))
    for shown, words in ((asks, "two is paused and waits for:"), (failed, "error  ")):
        lines = shown.out.splitlines()
        place = next(number for number, line in enumerate(lines) if line.startswith(words))
        assert lines[1] == "question"
        assert place < lines.index("state"), shown.out
    before, *commands = asks.out.splitlines()[-3:]
    assert before == "to answer them:"
    assert all(" answer two " in command for command in commands)


def test_events_have_the_names_of_another_framework(shell: Shell) -> None:
    shell("run", "tool_user", "What is 2+3*4?", "--approve", "none", "--run-id", "r")
    *events, result = shell("events", "r", "--style", "embedia").lines
    assert [event["event"] for event in events[:3]] == ["ToolStart", "AgentStart", "ChatLLMInit"]
    assert (events[-1]["event"], events[-1]["data"]["output"], result["status"]) == ("ToolEnd", "14", "completed")
    with shell.terminal("events", "r", "--style", "embedia") as screen:
        assert screen.end() == 0
    for text in ("[id: r] [event: AgentStart]\r\nquestion: What is 2+3*4?", "r  tool_user  completed"):
        assert text in screen.shown
    refused = shell("events", "r", "--style", "other")
    assert (refused.code, refused.err) == (2, "error: --style other: use embedia\n")


def test_events_are_lines_and_the_last_is_the_result(ran: Shell) -> None:
    all_of_them, rest = ran.look(("events", "writer"), ("events", "writer", "--after", 4))
    *events, result = all_of_them.lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (result["run_id"], result["status"]) == ("writer", "completed")
    assert rest.lines == all_of_them.lines[4:]


def test_following_ends_with_the_run(ran: Shell) -> None:
    with ran.begin("events", "two", "--follow", "--after", 2) as following:
        assert ran("cancel", "two").code == 0
        *events, result = following.end().lines
    assert [event["type"] for event in events if event["type"] != "resumed"] == ["asked", "cancelled", "ended"]
    assert [event["seq"] for event in events] == list(range(3, len(events) + 3))
    assert result["status"] == "cancelled"


def test_who_reads_the_first_line_only_gets_it(ran: Shell) -> None:
    if FULL:
        done = ran.sh("python -m orchestrator events writer | head -1; echo ${PIPESTATUS[0]} >&2")
        first, told = done.out, done.err
    else:
        with ran.begin("events", "writer") as process:
            first = process.first_line()
            done = process.end()
        told = f"{done.err}{done.code}\n"
    assert json.loads(first)["type"] == "run_started"
    assert told == "0\n"


def test_a_graph_file_is_checked_with_all_its_problems(shell: Shell) -> None:
    (shell.place / "bad.yaml").write_text(json.dumps({**ASK, "edges": "START -> aks -> END"}))
    (shell.place / "evil.yaml").write_text('!!python/object/apply:os.system ["touch owned"]')
    bad, evil = shell.all(("check", "bad.yaml", "--json"), ("check", "evil.yaml"))
    assert (bad.code, bad.json["ok"], bad.json["graph"]) == (1, False, "hello")
    assert len(bad.json["problems"]) > 1
    assert set(bad.json["problems"][0]) == {"code", "message", "nodes", "edges"}
    assert "did you mean 'ask'?" in bad.json["problems"][0]["message"]
    assert (evil.code, (shell.place / "owned").exists()) == (1, False)


def test_graphs_and_runs_are_drawn(ran: Shell) -> None:
    dot, svg, then, now, unknown, kind = ran.look(
        ("render", "tool_user", "--format", "dot"),
        ("render", "bad", "-o", "bad.svg"),
        ("render", "writer", "--at", 3),
        ("render", "writer"),
        ("render", "nosuch"),
        ("render", "tool_user", "-o", "x.pdf"),
    )
    assert "digraph" in dot.out
    assert (svg.out, svg.err) == ("", "wrote bad.svg\n")
    assert ET.parse(ran.place / "bad.svg").getroot().tag.endswith("svg")
    assert "broken" in (ran.place / "bad.svg").read_text()
    assert (then.code, now.code) == (0, 0)
    assert then.out != now.out
    assert (unknown.code, "this store has no run 'nosuch'" in unknown.err) == (2, True)
    assert (kind.code, "svg, png, dot, mermaid, text, html, yaml" in kind.err) == (2, True)


def test_one_tool_is_shown_with_its_whole_schema(shell: Shell) -> None:
    of_module, shipped, nobodys = shell.all(("tools", "trial.py:note"), ("tools", "view_file"), ("tools", "no_such"))
    for shown, words in ((of_module, '"description": "the line."'), (shipped, '"first": {')):
        assert (shown.code, words in shown.out) == (0, True)
        assert json.loads(shown.out[shown.out.index("\n{") :])["type"] == "object"
    assert (nobodys.code, "neither a shipped group" in nobodys.err) == (2, True)


def test_graphs_and_tools_are_listed(shell: Shell) -> None:
    graphs, one = shell.all(("graphs", "--json"), ("tools", "trial.py:note", "--json"))
    assert {"name", "description"} == set(graphs.json[0])
    assert "tool_user" in [graph["name"] for graph in graphs.json]
    assert set(one.json[0]) == {"group", "name", "description", "parameters", "risk", "effect"}
    assert one.json[0]["parameters"]["properties"]["text"]["description"] == "the line."
    assert not (shell.place / ".orchestrator").exists()
