"""The page of figures holds exactly what the kept figures give, and names all that is measured."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.render.geometry import text_width
from tests.benchmarks import report
from tests.benchmarks.__main__ import rounded, written
from tests.benchmarks.chart import NAMES, bars, lines, said, ticks
from tests.benchmarks.report import FIGURES, GROUPS, PAGE, PICTURES, TARGETS, Kept, Place
from tests.benchmarks.subjects import PEERS, SUBJECTS
from tests.benchmarks.table import LONG, WHAT, rows_of
from tests.benchmarks.worker import said as answered

SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_is_what_the_kept_figures_give() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert report.page(text, report.read()) == text
    for part in report.PARTS:
        assert text.count(f"<!-- figures: {part} -->") == 1


def test_the_charts_are_what_the_kept_figures_give() -> None:
    drawn = report.pictures(report.read())
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(drawn) == sorted(path.stem for path in PICTURES.glob("performance_*.svg"))
    for name, svg in drawn.items():
        assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == svg
        assert f"pictures/{name}.svg" in text


def test_every_workload_has_a_place_on_the_page() -> None:
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(WHAT)
    assert set(LONG) < set(WHAT)
    assert list(NAMES) == [*("ours", "floor", "floor_sized"), *PEERS]


def test_every_target_is_about_something_that_is_measured() -> None:
    for target in TARGETS:
        for place in (target.one, target.other, target.less):
            assert place is None or (place.workload in WHAT and place.subject in SUBJECTS and place.figure in FIGURES)


@pytest.mark.parametrize("subject", ["floor", "floor_sized", "ours"])
def test_what_needs_no_peer_is_measured_and_prepared(subject: str) -> None:
    names = answered(subject)
    assert isinstance(names, dict)
    assert set(names["prepared"]) <= set(names["workloads"]) <= set(WHAT)
    if subject == "ours":
        assert set(names["workloads"]) == set(WHAT)


def kept(**subjects: list[float]) -> Kept:
    """Figures of one workload, `durable`."""
    rounds = [{name: {"us": found[n]} for name, found in subjects.items() if n < len(found)} for n in range(3)]
    return {"machine": {}, "rounds": {"durable": rounds}}


def test_ratios_are_those_of_each_round_and_not_of_medians() -> None:
    figures = kept(ours=[10, 300, 20], floor=[10, 100, 10], floor_sized=[5, 50, 5])
    (row,) = rows_of("durable", figures["rounds"]["durable"])
    assert (row.medians["ours"], row.ratio, row.lead) == (20, 2, None)
    by_what = {target.what: report.reached(figures, target) for target in TARGETS}
    assert by_what["durable loop, of the bare floor"] == 2
    assert by_what["durable step, more than the floor with a sized log"] == 15
    assert by_what["loop in memory, of Burr's"] is None
    assert "| not measured |" in report.targets(figures)


def test_a_peer_that_is_faster_is_named_and_one_that_failed_is_left_out() -> None:
    figures = kept(ours=[100, 100, 100], burr=[50, 50, 50], dbos=[200])
    assert report.faster(figures) == "- durable loop, default nodes; a step (µs): Burr, 0.50 of ours\n"
    assert report.typical(figures, Place("dbos", "durable")) == 200
    assert report.typical(figures, Place("langgraph", "durable")) is None


def test_what_is_kept_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = kept(ours=[1234.56, 2, 3])
    small = {name: rounded(rounds) for name, rounds in figures["rounds"].items()}
    (tmp_path / "f.json").write_text(written({"day": "today"}, small))
    monkeypatch.setattr(report, "KEPT", tmp_path / "f.json")
    assert report.read() == {"machine": {"day": "today"}, "rounds": small}
    assert small["durable"][0]["ours"]["us"] == 1235
    assert json.loads((tmp_path / "f.json").read_text())["rounds"] == small


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.2, "us", "0.2 µs"), (51.4, "us", "51.4 µs"), (999.9, "us", "1 ms"), (250, "us", "250 µs"),
        (1072, "us", "1.07 ms"), (48, "ms", "48 ms"), (1500, "ms", "1.5 s"), (332e6, "bytes", "332 MB"),
        (1000, "bytes", "1 kB"),
    ],
)  # fmt: skip
def test_values_have_the_unit_that_suits_them(value: float, unit: report.Unit, text: str) -> None:
    assert said(value, unit) == text


@pytest.mark.parametrize("span", [(1, 1), (0.3, 0.4), (519, 7378), (100, 1000), (1.4, 4.2e5), (7, 7e6)])
def test_ticks_are_around_all_values_and_few(span: tuple[float, float]) -> None:
    marks = ticks(*span)
    assert marks[0] <= span[0] <= span[1] <= marks[-1]
    assert marks == sorted(set(marks))
    assert len(marks) <= 9


def test_names_at_the_ends_of_lines_do_not_lie_on_one_another() -> None:
    series = {name: [(50.0, 10.0 + n / 100), (800.0, 20.0 + n / 100)] for n, name in enumerate(PEERS)}
    found = ET.fromstring(lines("Many <lines>", series, "steps", "us"))
    heights = sorted(float(text.get("y", "")) for text in found.iter(f"{SVG}text") if "name" in text.get("class", ""))
    assert len(heights) == len(PEERS)
    assert all(below - above >= 14 for above, below in pairwise(heights))


def test_the_longest_name_fits_beside_its_line() -> None:
    found = ET.fromstring(lines("A line", {"ours": [(50.0, 10.0), (800.0, 20.0)]}, "steps", "us"))
    name = next(text for text in found.iter(f"{SVG}text") if text.text == "agent-graph-orchestrator")
    assert float(name.get("x", "")) + 1.1 * text_width(str(name.text), 12.0) < float(found.get("width", ""))


def test_a_chart_has_one_bar_for_each_and_says_the_values_to_screen_readers() -> None:
    found = ET.fromstring(bars("Loops", {"ours": 51.4, "burr": 195, "dbos": 0.0001}, "us"))
    assert len(list(found.iter(f"{SVG}rect"))) == 1 + 3
    assert found.get("role") == "img"
    assert found.get("aria-label", "").endswith("agent-graph-orchestrator 51.4 µs; Burr 195 µs.")
