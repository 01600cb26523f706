"""The recording of a terminal in the README: that it is what happens, and that every program can show it."""

from __future__ import annotations

import re
import shutil
from xml.etree import ElementTree as ET

import pytest

from tests.cli.recording import PLACE, RESUME, RUN, STILL, pictures
from tests.cli.screencast import CELL, Frame, Span, rows_of, svg, texts

KEPT = PLACE.read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: `apt-get install tmux`")
def test_the_recording_is_what_happens() -> None:
    for file, made in pictures().items():
        assert texts(made) == texts(file.read_text(encoding="utf-8")), "record anew: python -m tests.cli.recording"


def test_it_ends_with_the_whole_story() -> None:
    last = [text for where, _, _, text in texts(KEPT) if "last" in where or not where]
    for part in (
        f"$ {RUN}",
        "Approve? [y/n/e] Killed",
        f"$ {RESUME}",
        "… 2 steps before this",
        "Approve? [y/n/e] y",
        "84",
    ):
        assert last.count(part) == 1, last
    assert [text for text in last if "✓" in text or "model offline" in text], last
    assert last.index("Approve? [y/n/e] Killed") < last.index("84")


def test_its_first_screen_shows_a_question() -> None:
    root = ET.fromstring(KEPT)
    style = root.findtext(f"{SVG}style") or ""
    names = re.findall(r"@keyframes (f\d+)\{0\.00%\{visibility:visible\}", style)
    first = [text for where, _, _, text in texts(KEPT) if not where or where.split()[1] in names]
    assert f"$ {RUN}" in first
    assert "Approve? [y/n/e]" in first
    assert len(first) > 10


def test_the_still_picture_is_its_last_screen() -> None:
    still = STILL.read_text(encoding="utf-8")
    assert "animation" not in still
    last = [text[1:] for text in texts(KEPT) if "last" in text[0] or not text[0]]
    assert sorted(text[1:] for text in texts(still)) == sorted(last)


def test_it_is_small_and_runs_nowhere_but_in_a_picture() -> None:
    assert len(KEPT.encode()) < 100_000
    assert not re.search(r"<script|<foreignObject|href|@import|url\(|\son\w+=", KEPT)
    assert "prefers-reduced-motion:reduce" in KEPT
    root = ET.fromstring(KEPT)
    assert (root.get("role"), root.findtext(f"{SVG}title")) == ("img", "A run in a terminal that is killed and goes on")
    for group in root.iter(f"{SVG}g"):
        hidden = group.get("visibility") == "hidden"
        assert hidden == ("f " in f"{group.get('class', '')} " and "last" not in group.get("class", ""))


def test_no_text_depends_on_the_width_of_a_font() -> None:
    root = ET.fromstring(KEPT)
    shown = [text for text in root.iter(f"{SVG}text") if text.get("text-anchor") is None]
    assert len(shown) > 30
    for text in shown:
        assert float(text.get("textLength", "0")) == pytest.approx(len(text.text or "") * CELL)
        assert (text.text or "").strip() == text.text
    height = float(root.get("height", "0"))
    assert all(float(text.get("y", "0")) < height for text in shown)


def test_a_captured_screen_is_read_with_its_colours_and_without_its_times() -> None:
    masks = ((re.compile(r"\d+\.\d\d s"), "0.01 s"),)
    captured = "\x1b[32m✓ \x1b[39ma\x1b[2m  12.34 s  \x1b[0;1;33mx\n東京  y\x1b[0m"
    assert rows_of(captured, masks) == (
        (Span(0, "✓", "g"), Span(2, "a", ""), Span(5, "0.01 s", "d"), Span(13, "x", "b y")),
        (Span(0, "東京", "b y"), Span(6, "y", "b y")),
    )


def test_what_stands_on_several_screens_is_drawn_once_and_seen_on_these_only() -> None:
    one, two, three = Span(0, "one", ""), Span(0, "<two>", ""), Span(0, "three", "g")
    frames = [
        Frame(((one,), (two,)), (0, 0), 1),
        Frame(((one,),), (0, 0), 1, "a note"),
        Frame(((one,), (two,), (three,)), (1, 2), 2),
    ]
    assert frames[2].text == "one\n<two>\nthree"
    made = svg(frames, 20, 3, "t", "d")
    assert [(where, text) for where, _, _, text in texts(made) if text in ("one", "<two>", "three")] == [
        ("", "one"), ("f f1 last", "<two>"), ("f f4 last", "three"),
    ]  # fmt: skip
    assert "@keyframes f1{0.00%{visibility:visible}25.00%{visibility:hidden}50.00%{visibility:visible}}" in made
    assert "@keyframes f4{0%{visibility:hidden}50.00%{visibility:visible}}" in made
