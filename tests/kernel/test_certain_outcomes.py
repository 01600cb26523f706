"""Outcomes that no state can be wrong for: what may follow them is not looked at."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.errors import InvalidGraph
from orchestrator.kernel import queries

from .build import plan
from .sketches import settle
from .test_laws import DRAWN, quick, seeds


def unlooked() -> NoReturn:
    raise AssertionError("the state is looked at")


@quick
@given(kind=st.sampled_from(sorted(DRAWN)), seed=seeds)
def test_what_follows_a_certain_outcome_opens_nothing(kind: str, seed: int) -> None:
    try:
        topology = settle(DRAWN[kind](seed)).plan().topology
    except InvalidGraph:
        assume(False)
        return
    assert topology.certain
    for node, outcome in topology.certain:
        routes = topology.routes(node, outcome)
        assert len(routes) == 1
        assert queries._opening_fault(topology, node, routes, (), unlooked) is None


@pytest.mark.parametrize(
    ("text", "uncertain"),
    [
        ("a -> b -> END", set()),
        ("a -> b, c -> j", {("a", "done")}),
        ("a -> w : each xs; w -> j", {("a", "done")}),
        ("a -> w : each xs; a -> b; b, w -> j", {("a", "done")}),
    ],
)
def test_forks_and_maps_are_uncertain(text: str, uncertain: set[tuple[str, str]]) -> None:
    topology = plan(text).topology
    taken = {(node, outcome) for node in topology.nodes for outcome in topology.nodes[node].outcomes}
    assert {one for one in taken if one not in topology.certain} == uncertain
