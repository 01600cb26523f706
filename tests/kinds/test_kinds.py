"""docs/kinds.md says of every shipped kind what its code says, and its examples run in Python and in YAML."""

from __future__ import annotations

import re
import sys

import anyio
import pytest

from orchestrator import Graph
from orchestrator.graph.writing import to_plain_yaml
from tests.kinds.page import COMMAND, DOCS, PLACE, example, graph_of, shown_node, stale
from tests.kinds.shipped import common_fields, failures, own_fields, shipped, summary

KINDS = tuple(shipped())
PAGE = (DOCS / "kinds.md").read_text(encoding="utf-8")
each = pytest.mark.parametrize("kind", KINDS)


def part(kind: str) -> str:
    """The part of the page about a kind."""
    found = re.search(rf"^## {kind}$(.*?)(?=^## |\Z)", PAGE, re.M | re.DOTALL)
    assert found is not None, f"docs/kinds.md has nothing about node kind {kind!r}: run {COMMAND}"
    return found[1]


def test_there_are_kinds() -> None:
    assert {"complete", "respond", "execute", "subgraph", "route"} <= {*KINDS}


@each
def test_a_kind_has_an_example_and_words_for_itself_and_each_field(kind: str) -> None:
    example(kind)
    cls = shipped()[kind]
    assert summary(cls), f"node kind {kind!r} has no description: write the docstring of {cls.__qualname__}"
    mute = [field.name for field in own_fields(cls) if not field.meaning and field.name != "effect"]
    assert not mute, (
        f"fields {', '.join(mute)} of node kind {kind!r} have no description: write a text below each of them in "
        f"{cls.__module__}, then run {COMMAND}"
    )


@each
def test_the_page_has_each_field_port_outcome_and_failure_of_a_kind(kind: str) -> None:
    text, cls = part(kind), shipped()[kind]
    rows = [*own_fields(cls)]
    assert [field.name for field in rows if f"| `{field.name}` | " not in text] == []
    assert [outcome for outcome in (*shown_node(kind).outcomes, *cls.if_named) if f"`{outcome}`" not in text] == []
    assert [name for name, _ in failures(cls) if f"- `{name}`: " not in text] == []
    for field in (field for field in rows if field.port):
        assert f"| `{field.name}` | `{field.type.replace('|', chr(92) + '|')}` | {field.port} | " in text


def test_the_page_has_the_fields_of_every_kind() -> None:
    text = part("Fields of every kind")
    assert [field.name for field in common_fields() if f"| `{field.name}` | " not in text or not field.meaning] == []


def test_what_is_generated_is_what_would_be_generated_now() -> None:
    assert stale() == [], f"these files in docs differ from what the code says now: run {COMMAND}"


def test_there_is_no_file_of_another_kind() -> None:
    assert {path.stem for path in PLACE.iterdir() if path.suffix in (".py", ".yaml", ".svg")} == {*KINDS}


@each
@pytest.mark.parametrize("form", ["python", "yaml"])
def test_the_example_of_a_kind_is_sound_and_runs(kind: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example(kind)
    monkeypatch.setitem(sys.modules, kind, module)  # `call:count` is in the example itself
    if form == "yaml":
        graph = Graph.load(PLACE / f"{kind}.yaml", trust=[kind])
        assert to_plain_yaml(graph) == to_plain_yaml(graph_of(kind))
        monkeypatch.setattr(module, "graph", graph)
    assert module.graph.check().errors == ()
    anyio.run(module.main)
