"""Tables on terminals of several widths, and in a pipe."""

from __future__ import annotations

import io

import pytest

from orchestrator.render.terminal.tables import Cell, Column, Looks, looks_of, table
from orchestrator.render.terminal.texts import columns_of, wants_colours

COLUMNS = (
    Column("id"), Column("name", least=10), Column("count", right=True), Column("note", optional=True),
    Column("text", least=16),
)  # fmt: skip
LONG = "the first of many words that do not fit on a line of any terminal " * 4
ROWS = (
    ("a1", "plain", "1", "", LONG),
    ("a22", "東京の天気を調べるグラフの名前", "1,000", "", "京" * 150),
    ("a3", "e\u0301" * 30, "7", "", "👩\u200d💻" * 120),
    ("a4", "forged\nok  completed", "8", "", "\x1b[31mred\u202e" + LONG),
)
IDS = ("a1 ", "a22", "a3 ", "a4 ")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 120, 200])
def test_each_row_is_one_line_that_fits_the_terminal_and_uses_it(width: int) -> None:
    heading, *lines = table(COLUMNS, ROWS, Looks(width)).split("\n")
    assert heading.split() == ["ID", "NAME", "COUNT", "TEXT"]
    assert [line[:3] for line in lines] == [*IDS]
    assert all(width - 16 < columns_of(line) <= width and line.endswith("…") for line in lines)
    assert lines[0][:-1].split()[-1] in LONG.split(), "cut in the middle of a word"
    assert len({columns_of(line[: line.index(count) + len(count)]) for line, count in
                zip(lines, (" 1 ", " 1,000 ", " 7 ", " 8 "), strict=True)}) == 1  # fmt: skip
    assert "\\u001b[31mred\\u202e" in lines[3]
    assert all(line.isprintable() or "\u200d" in line for line in lines)


@pytest.mark.parametrize("width", range(45, 90))
def test_no_letter_or_emoji_is_cut_in_two(width: int) -> None:
    (_, _, wide, marked, _) = table(COLUMNS, ROWS, Looks(width)).split("\n")
    assert columns_of(wide) <= width
    assert columns_of(marked) <= width
    assert "👩…" not in marked
    assert "\u200d…" not in marked
    assert "e…" not in marked


def test_in_a_pipe_nothing_is_cut_and_nothing_is_coloured() -> None:
    rows = [("a1", "x" * 500, "1", "", Cell(LONG * 20, "red"))]
    heading, line = table(COLUMNS, rows, looks_of(io.StringIO())).split("\n")
    assert line == f"a1  {'x' * 500}      1  {LONG * 20}".rstrip()
    assert heading.startswith("ID  NAME")
    assert "\x1b" not in line


def test_ids_and_numbers_are_whole_on_the_narrowest_terminal() -> None:
    line = table(COLUMNS, [("0123456789abcdef", "name " * 9, "1,000,000", "", LONG)], Looks(20)).split("\n")[1]
    assert line.startswith("0123456789abcdef  name name…  1,000,000  the first of…")


def test_an_optional_column_is_there_if_one_row_has_it_and_groups_have_their_name_above() -> None:
    assert table((Column("a"), Column("b", optional=True)), [("1", ""), ("2", "x")]) == "A  B\n1\n2  x"
    assert table((Column("a"),), ["one\x1b[2J", ("1",), "none"]) == "  A\none\\u001b[2J\n  1\nnone"


def test_colours_stand_around_texts_and_change_no_width() -> None:
    rows = [("a1", Cell("red", "red"), "1", "", "x"), ("a2", Cell("none"), Cell("", "red"), "", "y")]
    heading, first, second = table(COLUMNS, rows, Looks(80, colours=True)).split("\n")
    assert heading.startswith("\x1b[1mID\x1b[0m  \x1b[1mNAME\x1b[0m")
    assert first == "a1  \x1b[31mred\x1b[0m       1  x"
    assert second == "a2  none         y"


@pytest.mark.parametrize(
    ("environ", "terminal", "pipe"),
    [
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, False, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_the_environment_decides_on_colours(environ: dict[str, str], terminal: bool, pipe: bool) -> None:
    assert (wants_colours(Terminal(), environ), wants_colours(io.StringIO(), environ)) == (terminal, pipe)


def test_a_terminal_has_its_width_and_one_without_unicode_another_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "93")
    monkeypatch.setenv("NO_COLOR", "1")
    assert looks_of(Terminal()) == Looks(93)
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    assert table((Column("a", least=5),), [("word " * 40,)], looks_of(Terminal())).endswith("word~")
