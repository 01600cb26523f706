"""`Sleep` and `Wait` as data and as pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Graph
from orchestrator.nodes import ITEM, Ask, Sleep, Wait


class Order(BaseModel):
    order_id: int = 7
    starts_at: str = ""
    payment: JsonValue = None
    reply: str = ""


def shop() -> Graph[Order]:
    return Graph(
        name="shop", state=Order, input="order_id", output="payment",
        nodes={"cool_down": Sleep(seconds=7200), "start": Sleep(until="starts_at"), "sleep": Sleep(seconds=90),
               "wait": Wait(event="paid", match={"order": "order_id", "item": ITEM}, into="payment", deadline=60),
               "ask": Ask(prompt="?", on_busy="queue")},
        edges="START -> cool_down -> start -> sleep -> wait -> END : received\nwait -> ask : timeout\nask -> END",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["shop.yaml", "shop.json"])
def test_they_come_back_from_a_file_as_they_were(tmp_path: Path, name: str) -> None:
    graph = shop()
    graph.save(tmp_path / name)
    loaded = Graph.load(tmp_path / name)
    assert (loaded.structure, loaded.content) == (graph.structure, graph.content)
    assert loaded.nodes["wait"] == graph.nodes["wait"]
    assert loaded.nodes["ask"] == graph.nodes["ask"]


def test_a_field_that_older_graphs_do_not_have_changes_no_digest_of_theirs() -> None:
    plain = Graph(name="g", state=Order, nodes={"ask": Ask(prompt="?")}, edges="START -> ask -> END")
    assert "on_busy" not in str(plain.data())
    busy = Graph(name="g", state=Order, nodes={"ask": Ask(prompt="?", on_busy="queue")}, edges="START -> ask -> END")
    assert busy.content != plain.content


def test_a_drawing_says_what_they_wait_for() -> None:
    svg = shop().to_svg()
    for words in ("sleeps 2 h", "sleeps until starts_at", "sleeps 90 s", "waits for paid"):
        assert words in svg
    assert svg.count('class="node look-time') == 3
    assert svg.count('class="node look-event') == 1
    assert "waits for paid" in shop().to_text()
