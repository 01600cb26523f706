"""Questions as text: what a person approves is readable."""

from __future__ import annotations

from orchestrator.kernel.question import Question
from orchestrator.render.terminal.event_lines import question_text


def approval(**args: object) -> str:
    return question_text(
        Question(id="q", kind="approval", node="confirm", payload={"tool": "write", "args": args, "risk": "write"})
    )


def test_arguments_of_one_line_are_one_line_of_json() -> None:
    assert '  args  {"path": "a.txt", "text": "hello"}' in approval(path="a.txt", text="hello").splitlines()


def test_a_document_has_its_own_lines() -> None:
    lines = approval(path="a.txt", text='# Title\n\n"quoted" \x1b[31m\nend').splitlines()
    begin = lines.index("  args")
    assert lines[begin + 1 : begin + 3] == ['    path  "a.txt"', "    text  4 lines"]
    document = lines[begin + 3 : begin + 7]
    assert document[0].endswith("# Title")
    assert '"quoted"' in document[2]
    assert "\\n" not in "".join(document)
    assert "\x1b" not in "".join(lines)


def test_a_long_document_says_how_many_lines_are_left_out() -> None:
    lines = approval(text="\n".join(f"line {number}" for number in range(160))).splitlines()
    assert "      ... 120 more lines" in lines
    assert sum("line " in line for line in lines) == 40
    assert lines[-1].endswith("characters of arguments of which some lines are not shown")


def test_a_line_in_which_spaces_could_hide_something_is_json() -> None:
    shown = approval(text="a\nls" + " " * 4000 + "; rm -rf build")
    assert "spaces]; rm -rf build" in shown
    assert "    text" not in shown
