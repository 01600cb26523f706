"""What the editor of graphs begins with, by its address."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from orchestrator import Graph, node, tool
from orchestrator.graph.refs import Trust
from orchestrator.graph.text.source import read_yaml
from orchestrator.strategies.react import react
from tests.web.api import Api, Note, api


def begun(served: Api, query: str, status: int = 200) -> dict[str, Any]:
    """The data of the page."""
    answer = served.client.get(f"/compose{query}", headers={"Accept": "text/html"})
    assert answer.status_code == status
    found = re.search(r'<script type="application/json" id="begin">(.*?)</script>', answer.text, re.S)
    data: dict[str, Any] = json.loads(found[1]) if found is not None else {}
    return data


def built(text: str) -> Graph:
    """The graph of a text that refers to no code."""
    return Graph.from_data(read_yaml(text), resolve=Trust(modules=()))


@pytest.mark.parametrize("query", ["", "?from=react", "?from=rewoo", "?from=chat", "?graph=react"])
def test_each_begin_is_a_graph_without_problems_that_refers_to_no_code(query: str) -> None:
    with api(react()) as served:
        graph = built(begun(served, query)["text"])
    assert graph.check().errors == ()
    assert graph.name == {"": "my_graph", "?graph=react": "react"}.get(query, f"{query.partition('=')[2]}_variant")


def test_a_graph_that_is_made_from_another_has_a_name_that_is_free() -> None:
    with api(react(), react(name="react_variant")) as served:
        assert built(begun(served, "?from=react")["text"]).name == "react_variant_2"


def test_where_the_graph_of_the_server_cannot_be_a_file_that_of_the_library_is_taken() -> None:
    @tool
    def look(word: str) -> str:
        """Look."""
        return word

    with api(react(tools=[look])) as served:
        found = begun(served, "?from=react")
        assert "of the library" in found["fault"]
        assert "think" in built(found["text"]).nodes
        assert "cannot refer to" in begun(served, "?graph=react")["fault"]


def test_a_graph_of_code_alone_says_why_it_is_no_text() -> None:
    @node
    async def own(state: Note) -> None:
        """Nothing."""

    graph = Graph(
        name="own", state=Note, input="topic", output="parts", nodes={"own": own}, edges="START -> own -> END"
    )
    with api(graph) as served:
        found = begun(served, "?graph=own")
    assert "cannot refer to" in found["fault"]
    assert built(found["text"]).name == "my_graph"


@pytest.mark.parametrize("query", ["?from=nothing", "?graph=nothing", "?graph=rewoo", "?graph=", "?other=1"])
def test_what_is_not_there_is_refused(query: str) -> None:
    with api(react()) as served:
        if query == "?graph=":
            assert begun(served, query)["graph"] == ""
        else:
            begun(served, query, 422 if "other" in query else 404)


def test_a_server_that_only_reads_lets_nothing_be_tried() -> None:
    with api(react(), settings={"read_only": True}) as served:
        found = begun(served, "")
        assert (found["tries"], found["saves"]) == (False, False)
        assert served.post("graphs/check", text=found["text"])["ok"]
