"""The applications in docs/examples: their READMEs typed as they are, offline, and each killed in the middle."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Deny, Executor, Value
from orchestrator.stores import open_store
from orchestrator.testing import ScriptedModel
from tests.graphs.applications import NAMES, PLACE, copied, loaded, picture
from tests.support.programs import Piped
from tests.support.shell import Shell

VARIES = (
    (r"\\\.\\\.\\\.", ".*"),
    (r"\b[0-9a-f]{8}\b", "[0-9a-f]{8}"),
    (r"20\d\d\\-\d\d\\-\d\d", r"\d{4}-\d\d-\d\d"),
    (r"\d+(?:\\\.\d+)?\\ s\b", r"\d+(?:\.\d+)? s"),
    (r"(?:\\ ){2,}", " +"),
)
"""What is not compared: in an escaped line, and the pattern in its place."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A new directory for each test."""
    return Shell(tmp_path)


def records(shell: Shell, run_id: str) -> list[Any]:
    """Return the journal of a run."""

    async def read() -> list[Any]:
        store = open_store(f"sqlite:///{shell.place}/.orchestrator/runs.db")
        try:
            return list(await store.read(run_id))
        finally:
            await store.close()

    return anyio.run(read)


def typed(readme: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the README's `console` blocks, with the lines that it is said to print."""
    for block in re.findall(r"^```console\n(.*?)^```$", readme, re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *lines = part.splitlines()
            yield command, lines


def pattern(lines: list[str]) -> str:
    """Return the pattern of an output: `...` is any number of lines."""
    found = ""
    for line in lines:
        escaped = re.escape(line)
        for varies, instead in VARIES:
            escaped = re.sub(varies, lambda match, instead=instead: instead, escaped)  # type: ignore[misc]
        found += r"(?:.*\n)*?" if line == "..." else rf"{escaped} *\n"
    return found


def follow(readme: str, shell: Shell, stack: ExitStack) -> list[Piped]:
    """Type the commands, compare what they print, and return the programs that were begun with `&`."""
    programs: list[Piped] = []
    exports = ""
    for command, lines in typed(readme):
        if command.endswith(" &"):
            module, *words = command.removeprefix("python ").removesuffix(" &").split()
            programs.append(
                stack.enter_context(shell.begin(*words, module=module.removesuffix(".py"), cwd=shell.place))
            )
            continue
        if command.startswith("export "):
            exports += f"{command}\n"
            continue
        if command == "kill -9 $!":
            programs[-1].signal(signal.SIGKILL)
            assert programs[-1].wait() == -signal.SIGKILL
            continue
        said = ""

        def shown(command: str = exports + command, lines: list[str] = lines) -> bool:
            nonlocal said
            done = shell.sh(command)
            said = done.out + done.err
            return re.fullmatch(pattern(lines), said if said.endswith("\n") else said + "\n") is not None

        if command.startswith(("orchestrator runs", "orchestrator show", "cat ")):
            try:
                shell.until(shown)  # the program works meanwhile
            except AssertionError as error:
                error.add_note(f"{command}\n{said}")
                raise
        else:
            assert shown(), f"{command}\n{said}"
    return programs


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_that_of_the_graph_and_the_program_is_short(name: str) -> None:
    assert (PLACE / name / f"{name}.svg").read_text(encoding="utf-8") == picture(name)
    assert len((PLACE / name / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 200
    assert f"(examples/{name}/README.md)" in (PLACE.parent / "examples.md").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_readme_can_be_typed(name: str, shell: Shell) -> None:
    copied(name, shell.place)
    with ExitStack() as stack:
        follow((PLACE / name / "README.md").read_text(encoding="utf-8"), shell, stack)


@pytest.fixture
def triage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The support triage, in a folder of its own, with its offline model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORCHESTRATOR_MODEL", raising=False)
    return loaded("triage")


@pytest.mark.anyio
async def test_a_small_refund_is_paid_and_a_person_decides_about_a_large_one(anyio_backend: str, triage: Any) -> None:
    async with Executor(graphs=[triage.graph], model=triage.chosen_model()) as executor:
        small = await executor.start(triage.graph, "My money back for A17, please. Ann")
        assert small.waiting[0].node == "check"
        assert [line.split(",", 1)[1] for line in Path("refunds.csv").read_text().splitlines()] == ["A17,Ann,12.6"]
        small = await executor.answer(small.run_id, small.waiting[0].id, Deny(reason="Be kind."))
        assert (small.waiting[0].node, small.values["reason"]) == ("check", "Be kind.")

        unnamed = await executor.start(triage.graph, "My money back, please. Bob")
        assert unnamed.waiting[0].node == "which"
        large = await executor.answer(unnamed.run_id, unnamed.waiting[0].id, Value(value="B20"))
        assert large.waiting[0].node == "confirm"
        assert large.waiting[0].payload["args"] == {"order": "B20", "customer": "Bob", "amount": 150.0}
        large = await executor.answer(large.run_id, large.waiting[0].id, Deny(reason="It came."))
        done = await executor.answer(large.run_id, large.waiting[0].id, Approve())
        assert (done.status, done.output) == ("completed", "Thank you for your mail. We will look into it.")
    assert len(Path("refunds.csv").read_text().splitlines()) == 1


@pytest.mark.anyio
async def test_of_several_mails_about_an_order_one_is_paid_without_a_person(anyio_backend: str, triage: Any) -> None:
    tickets = [f"t{number}" for number in range(8)]
    async with Executor(graphs=[triage.graph], model=triage.chosen_model()) as executor:
        async with anyio.create_task_group() as tasks:
            for ticket in tickets:
                tasks.start_soon(partial(executor.start, triage.graph, "My money back for A17. Ann", run_id=ticket))
        assert [line.split(",")[1] for line in Path("refunds.csv").read_text().splitlines()] == ["A17"]
        runs = {ticket: await executor.load(ticket) for ticket in tickets}
        (paid,) = [ticket for ticket, run in runs.items() if run.waiting[0].node == "check"]
        for ticket in sorted({*tickets} - {paid}):
            (question,) = runs[ticket].waiting
            assert question.node == "confirm"
            assert question.payload["shown"]["earlier"] in (f"ticket {paid}", "ticket ")  # whose name is written now
        (question,) = (run := runs[min({*tickets} - {paid})]).waiting
        assert (await executor.answer(run.run_id, question.id, Approve())).waiting[0].node == "check"
    assert len(Path("refunds.csv").read_text().splitlines()) == 2


@pytest.mark.full
def test_killed_tickets_go_on_and_no_refund_is_paid_twice(shell: Shell) -> None:
    copied("triage", shell.place)

    def asked() -> set[str]:
        rows = shell("runs", "--waiting", "--json").json
        return {row["run_id"] for row in rows}

    with shell.begin("tickets.csv", module="triage", cwd=shell.place) as program:
        shell.wait_for("refunds.csv")
        program.signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
    with shell.begin("tickets.csv", module="triage", cwd=shell.place):
        shell.until(lambda: asked() == {"t1", "t2", "t3", "t4"})
        assert shell("answer", "t3", "C34", "--no-resume").code == 0
        shell.wait_for("refunds.csv", 2)
    assert sorted(line.split(",")[1] for line in shell.read("refunds.csv")) == ["A17", "C34"]


@pytest.mark.full
def test_a_killed_batch_goes_on_and_opens_no_ticket_twice(shell: Shell) -> None:
    copied("nightly", shell.place)
    for opened in (1, 2):
        with shell.begin("feedback.csv", module="nightly", cwd=shell.place) as program:
            shell.wait_for("tickets.csv", opened)
            program.signal(signal.SIGKILL)
            assert program.wait() == -signal.SIGKILL
    with shell.begin("feedback.csv", module="nightly", cwd=shell.place) as program:
        program.read()
        assert program.wait() == 1
    assert sorted(line.split(",")[1] for line in shell.read("tickets.csv")) == ["Bob", "Eva", "Gil"]
    assert "| 4 | Dee |  |  | the text is empty |" in shell.read("report.md")
    (run,) = shell("runs", "--json").json
    journal = [record.key for record in records(shell, run["run_id"]) if record.type == "effect_settled"]
    assert len(journal) == len(set(journal)), "no call that ended was made again"
    assert (run["status"], run["output"]) == ("completed", "1")


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (b"3,Ida,good, really good", "| 3 | Ida |  |  | more than 3 columns |"),
        (b"3,Ida", "| 3 | Ida |  |  | the text is empty |"),
        (b"3", "| 3 |  |  |  | the text is empty |"),
        (b"3,Ida, \t", "| 3 | Ida |  |  | the text is empty |"),
        (b"3,Ida,gr\xfc\xdfe", "| 3 | Ida |  |  | not UTF-8 |"),
        (b"3,I\xf6a,good", "| 3 | I\ufffda |  |  | not UTF-8 |"),
        (b'3,Ida,"good" she said', "| line 3 |  |  |  | ',' expected after '\"', up to line 3 |"),
        (b"3,Ida," + b"x" * 200_000, "| line 3 |  |  |  | field larger than field limit (131072), up to line 3 |"),
        (b"3,Ida,\0", "| 3 | Ida | other |  |  |"),
        (b'3,"Ida|\r\nJo","two\nlines"', "| 3 | Ida/ Jo | other |  |  |"),
    ],
    ids=lambda given: str(given)[:40],
)
@pytest.mark.anyio
async def test_a_row_that_cannot_be_read_ends_no_batch(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes, line: str
) -> None:
    nightly = loaded("nightly")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "chosen_model", lambda: ScriptedModel(lambda request: "other"))
    Path("f.csv").write_bytes(b"\xef\xbb\xbfrow,customer,text\r\n1,Ann,good\r\n" + row + b"\r\n\r\n4,Jo,fine")
    assert await nightly.main("f.csv") == (" other " not in line)
    report = Path("report.md").read_text(encoding="utf-8")
    assert report.splitlines()[6:] == ["| 1 | Ann | other |  |  |", line, "| 4 | Jo | other |  |  |"]


def test_a_quote_that_nothing_closes_says_which_lines_it_took() -> None:
    file = io.StringIO('row,customer,text\n1,Ann,good\n2,Bob,"bad\n3,Cem,fine\n')
    rows = [(row["row"], row["fault"]) for row in loaded("nightly").rows_of(file)]
    assert rows == [("1", ""), ("line 3", "unexpected end of data, up to line 4")]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "content", [None, b"", b"row;customer;text\n1;Ann;good\n", "row,customer,text".encode("utf-16")]
)
async def test_a_file_that_is_no_table_is_named_and_read_again_at_the_next_start(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    content: bytes | None,
) -> None:  # fmt: skip
    nightly = loaded("nightly")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "chosen_model", lambda: ScriptedModel(lambda request: "other"))
    if content is not None:
        Path("f.csv").write_bytes(content)
    assert await nightly.main("f.csv") == 1
    said = capsys.readouterr().out
    assert "failed: " in said
    assert "f.csv" in said
    Path("f.csv").write_text("row,customer,text\n1,Ann,good\n", encoding="utf-8")
    assert await nightly.main("f.csv") == 0
    assert "1 rows, 0 failed" in Path("report.md").read_text(encoding="utf-8")


@pytest.mark.anyio
async def test_a_spent_budget_ends_in_a_report_of_what_there_is(anyio_backend: str) -> None:
    research = loaded("research")
    question = "How tall is the Millau Viaduct, and which bridge has the longest main span?"
    whole = await research.research().run(question, model=research.model)
    assert whole.status == "completed"
    assert "343 metres" in whole.output
    assert "2,023 metres" in whole.output
    assert [len(whole.values["asked"]), len(whole.values["found"])] == [2, 2]

    part = await research.research(calls=10).run(question, model=research.model)
    assert part.status == "exhausted"
    assert part.output.startswith("Incomplete: calls=10 are spent")
    assert "Which bridge has the longest main span?" in part.output.partition("Not answered:")[2]


@pytest.mark.full
def test_a_command_is_confirmed_and_orders_in_a_file_are_withheld_also_after_kills(shell: Shell) -> None:
    copied("coder", shell.place)
    given = ("--tools", "files:project", "--tools", "terminal:project", "--model", "coder.py:model")
    assert shell("run", "coder.py", "Make check_shop.py pass.", *given, "--run-id", "fix").code == 3
    with shell.begin("approve", "fix") as process:
        shell.until(lambda: "(100 - discount)" in (shell.place / "project/shop.py").read_text())
        process.signal(signal.SIGKILL)  # in the middle of the edit, or of what follows
        process.wait()
    resumed = shell("resume", "fix")
    assert resumed.code == 3, resumed.err
    assert shell("show", "fix").code == 0  # the question is seen before it is answered
    done = shell("approve", "fix")
    assert (done.code, done.out.startswith("The total was the discount")) == (0, True), done.err
    assert shell.sh("cd project && python3 -B check_shop.py").out == "all is well\n"
    messages = shell("show", "fix", "--json").json["state"]["messages"]
    said = " ".join(message["content"] for message in messages if message["role"] == "tool")
    assert "fixes.example" not in said, "neither the orders nor an output of the command reached the model"
    assert said.count("a guard") == 2
    assert said.count("Replaced in shop.py") == 1
