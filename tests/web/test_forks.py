"""Forks over the API: what one can change, what it would do, and the family around a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator import Executor, Graph, node
from orchestrator.stores.requests import RunQuery
from tests.web.api import Api, Note, api, draft, letter
from tests.web.forking import AMOUNT, Shop, answer, pay
from tests.web.hostile import HOSTILE

SECRET = "sk-abcdefghijklmnopqrstuvwx"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def served(shop: Shop) -> Iterator[Api]:
    with api(shop.graph, letter, model=shop.model) as found:
        yield found


# -- the form --------------------------------------------------------------------------------------------------------


def test_the_form_has_the_state_of_that_moment_with_all_digits(served: Api) -> None:
    at = pay(served, "one")["asked"] - 4  # the model asked for the call
    found = served.get(f"runs/one/fork/form?at={at}")
    (branch,) = found["branches"]
    assert (found["at"], branch["path"], found["known"], found["other_version"]) == (at, None, True, False)
    assert str(AMOUNT) in branch["values"]["pending"] + branch["values"]["reply"]
    assert json.loads(branch["values"]["question"]) == "Pay acme"
    assert branch["schema"]["properties"]["question"]["type"] == "string"
    assert found["labels"] == {"team": "a"}


@pytest.mark.full
def test_where_the_record_is_a_result_or_an_answer_the_form_has_it(served: Api) -> None:
    at = pay(served, "one")
    result = served.get(f"runs/one/fork/form?at={at['looked']}")["result"]
    assert (result["kind"], result["name"], result["output"]) == ("tool", "search", True)
    assert json.loads(result["value"]) == "The invoice of Pay acme is open."
    given = served.get(f"runs/one/fork/form?at={at['answered']}")["answer"]
    assert given["answer"]["type"] == "approve"
    assert given["args"]["amount"] == str(AMOUNT)
    assert given["question"]["payload"]["tool"] == "pay"
    plain = served.get(f"runs/one/fork/form?at={at['asked']}")
    assert (plain["result"], plain["answer"], plain["record"]) == (None, None, "asked")


def test_inside_branches_each_has_a_form_of_its_own() -> None:
    @node(effect="pure")
    async def rest(state: Note) -> dict[str, str]:
        return {"parts": "rest"}

    nodes = {"a": draft, "b": draft, "c": draft, "end": rest.with_(join="all")}
    edges = "START -> a -> c -> end\nSTART -> b -> end\nend -> END"
    both = Graph(name="both", state=Note, input="topic", output="parts", nodes=nodes, edges=edges)
    with api(both) as found:
        found.start("both", run_id="one")
        forms = [found.get(f"runs/one/fork/form?at={at}")["branches"] for at in range(1, found.get("runs/one")["seq"])]
        inside = next(form for form in forms if len(form) > 1)
        paths = [one["path"] for one in inside]
        assert None not in paths
        assert len(set(paths)) == len(paths)
        at = next(seq for seq, form in enumerate(forms, 1) if form == inside)
        assert found.post("runs/one/fork/preview", 422, at=at, update={"topic": "x"})["where"] == "branch"
        found.post("runs/one/fork/preview", at=at, update={"topic": "x"}, branch=paths[0])


def test_secrets_are_blanked_in_a_form_that_says_so() -> None:
    with api() as found:
        found.start("plain", run_id="one", labels={"token": SECRET})
        found.post("runs/one/fork", 201, at=2, update={"args": {"password": SECRET}, "topic": "x"}, run_id="two")
        found.settled("two")
        form = found.get("runs/two/fork/form?at=3")
        assert SECRET not in json.dumps(form)
        assert form["branches"][0]["blanked"] == ["args"]
        assert SECRET not in json.dumps(found.get("runs/one/family"))


@pytest.mark.full
def test_a_record_that_cannot_be_forked_is_refused_with_the_words_of_the_executor(served: Api) -> None:
    pay(served, "one")
    head = served.get("runs/one")["seq"]
    for query in (f"?at={head}", f"?at={head + 1}", ""):
        found = served.get(f"runs/one/fork/form{query}", 422)
        assert (found["where"], "fork" in found["detail"] or "has no record" in found["detail"]) == ("at", True)
    assert served.get(f"runs/one/fork/form?at={head - 1}")["branches"] == [], "no step runs behind it"
    served.get("runs/none/fork/form?at=1", 404)


# -- the preview -----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_preview_makes_no_run(served: Api) -> None:
    at = pay(served, "one")["looked"]
    before = served.get("runs")["runs"]
    served.post("runs/one/fork/preview", at=at, result="nothing is open", run_id="two", labels={"a": "b"})
    assert [one["run_id"] for one in served.get("runs")["runs"]] == [one["run_id"] for one in before]


@pytest.mark.full
def test_a_preview_says_what_is_reused_and_what_the_fork_asks_about(served: Api, shop: Shop) -> None:
    at = pay(served, "one")
    found = served.post("runs/one/fork/preview", at=at["looked"])
    assert (found["calls"], found["inherited"]["cost"]) == (2, 0.004)
    assert [(one["name"], one["became"]) for one in found["open_calls"]] == [("search", "reused")]
    assert found["irreversible"] == ["pay"]
    (call,) = found["asks"]
    assert (call["name"], call["run_id"], call["status"]) == ("pay", "one", "returned")
    assert json.loads(call["args"]) == {"amount": AMOUNT, "to": "acme"}
    assert str(AMOUNT) in call["args"]

    made = served.post("runs/one/fork", 201, at=at["looked"], run_id="two")
    assert made["inherited"]["cost"] == found["inherited"]["cost"]
    served.settled("two")
    answer(served, "two", approve=True)  # what the shop asks itself
    (question,) = served.get("runs/two")["waiting"] or [{"payload": {}}]
    asked = question["payload"].get("family", [])
    assert [(one["run"], one["seq"]) for one in asked] == [(call["run_id"], call["seq"])], "as it was announced"
    assert len(shop.paid) == 1


def test_a_call_that_is_behind_the_fork_is_not_asked_about(served: Api) -> None:
    at = pay(served, "one")["paid"]
    found = served.post("runs/one/fork/preview", at=at)
    assert found["asks"] == []
    assert [(one["name"], one["effect"], one["became"]) for one in found["open_calls"]] == [
        ("pay", "irreversible", "reused")
    ]
    later = served.post("runs/one/fork/preview", at=at + 1)
    assert [(one["name"], one["became"]) for one in later["done"]] == [("pay", "reused")]


@pytest.mark.full
def test_a_call_without_a_result_counts_as_not_made_and_an_approval_of_it_does_not_count(served: Api) -> None:
    at = pay(served, "one")
    begun = served.post("runs/one/fork/preview", at=at["paid"] - 1)
    assert [(one["name"], one["became"]) for one in begun["open_calls"]] == [("pay", "repeated")]
    assert [one["name"] for one in begun["asks"]] == ["pay"], "the run that was forked made it"
    approved = served.post("runs/one/fork/preview", at=at["answered"])
    assert approved["withdrawn"] == 1


@pytest.mark.full
def test_calls_of_other_forks_are_announced_too(served: Api) -> None:
    at = pay(served, "one", approve=False)
    assert served.post("runs/one/fork/preview", at=at["looked"])["asks"] == []
    served.post("runs/one/fork", 201, at=at["asked"], run_id="two")
    served.settled("two")
    while served.get("runs/two")["waiting"]:  # a fork asks before the call itself
        answer(served, "two", approve=True)
    found = served.post("runs/one/fork/preview", at=at["looked"])
    assert [(one["name"], one["run_id"]) for one in found["asks"]] == [("pay", "two")]


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"update": {"rounds": "x"}}, "rounds"),
        ({"update": {"nothing": 1}}, "nothing"),
        ({"branch": "x", "update": {"rounds": 1}}, "branch"),
        ({"answer": {"approve": True, "digest": "d"}}, "answer"),
        ({"at": 10**6}, "at"),
        ({"run_id": "a/b"}, "run_id"),
        ({"graph": "letter"}, "graph"),
    ],
)
def test_what_refuses_the_fork_refuses_its_preview_in_the_same_words(
    served: Api, body: dict[str, Any], where: str
) -> None:
    pay(served, "one")
    body = {"at": 4, **body}
    told = served.post("runs/one/fork/preview", 422, **body)
    assert where in (told.get("where", ""), *told["detail"].replace("'", " ").split())
    assert served.post("runs/one/fork", 422, **body) == told
    assert [one["run_id"] for one in served.get("runs")["runs"]] == ["one"]


def test_a_fork_that_cannot_go_on_in_the_version_of_the_server_is_refused_before_it_is_made() -> None:
    other = Graph(
        name="letter", state=Note, input="topic", output="parts", nodes={"draft": draft}, edges="START -> draft -> END"
    )
    with api(letter) as found:
        found.start("letter", run_id="one")
        store = found.executor.store

        async def with_other() -> tuple[str, int]:
            async with Executor(store, graphs=[other]) as executor:
                form = await executor.forks.choices("one", 2)
                assert (form.known, form.other_version) == (True, True)
                with pytest.raises(Exception, match="letter"):
                    await executor.forks.preview("one", at=2, graph=other)
                return (await store.runs(RunQuery())).runs[0].run_id, len((await store.runs(RunQuery())).runs)

        assert found.portal.call(with_other) == ("one", 1)


def test_a_server_without_the_graph_makes_forks_and_says_that_it_cannot_run_them() -> None:
    with api(letter) as found:
        found.start("letter", run_id="one")
        store = found.executor.store

        async def elsewhere() -> bool:
            async with Executor(store) as executor:
                return (await executor.forks.choices("one", 2)).known

        assert found.portal.call(elsewhere) is False


# -- the family ------------------------------------------------------------------------------------------------------


def family(found: Api, run_id: str) -> dict[str, tuple[str, str, list[str]]]:
    return {
        one["run_id"]: (one["parent"], one["where"], one["differs"])
        for one in found.get(f"runs/{run_id}/family")["runs"]
    }


@pytest.mark.full
def test_a_family_has_parents_brothers_and_forks_and_how_they_differ(served: Api) -> None:
    at = pay(served, "one")
    assert family(served, "one") == {"one": ("", "", [])}
    served.post("runs/one/fork", 201, at=at["looked"], result="nothing", run_id="two")
    served.settled("two")
    digest = served.get(f"runs/one/fork/form?at={at['answered']}")["answer"]["question"]["digest"]
    no = {"deny": {"reason": "no"}, "digest": digest}
    served.post("runs/one/fork", 201, at=at["answered"], answer=no, run_id="three")
    served.settled("three")
    served.post("runs/two/fork", 201, at=5, update={"question": "Pay bob", "rounds": 3}, run_id="four", start=False)
    served.post("runs/one/replay", 201, run_id="again")
    found = family(served, "two")
    assert list(found) == ["one", "two", "three", "again", "four"]
    assert found["two"][2] == ['another result: {"output": "nothing"}']
    assert found["two"][1].startswith("after a call in ")
    assert found["three"] == ("one", "at an answer", ["another answer: denied: no"])
    assert found["four"] == ("two", "after think", ["question = Pay bob", "rounds = 3"])
    assert {one["run_id"]: one["relation"] for one in served.get("runs/one/family")["runs"]} == {
        "one": "", "two": "fork", "three": "fork", "again": "replay",
    }  # fmt: skip
    assert list(family(served, "four")) == ["one", "two", "four"]


def test_a_parent_that_is_deleted_is_named(served: Api) -> None:
    pay(served, "one")
    for name in ("two", "three"):
        served.post("runs/one/fork", 201, at=4, run_id=name, start=False)
    assert served.client.delete("/api/runs/one").status_code == 200
    runs = served.get("runs/two/family")["runs"]
    assert [(one["run_id"], one["deleted"]) for one in runs] == [("one", True), ("two", False), ("three", False)]


@pytest.mark.full
def test_a_family_is_bounded_and_its_runs_are_found_by_an_index() -> None:
    with api() as found:
        found.start("plain", run_id="one")
        for number in range(25):
            found.post("runs/one/fork", 201, at=2, run_id=f"fork-{number}", start=False)
        listed = found.get("runs/one/family")
        assert (len(listed["runs"]), listed["more"]) == (21, ["one"])
        assert listed["runs"][-1]["run_id"] == "fork-24", "the newest are listed"
        own = found.get("runs/fork-0/family")
        assert "fork-0" in [one["run_id"] for one in own["runs"]]


def test_authorize_is_asked_about_each_run_of_a_family() -> None:
    hidden: set[str] = set()

    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if run is not None and run.run_id in hidden else "ann"

    with api(settings={"authorize": authorize}) as found:
        found.start("plain", run_id="one")
        for name in ("two", "three"):
            found.post("runs/one/fork", 201, at=2, run_id=name, start=False)
        hidden |= {"three"}
        assert list(family(found, "one")) == ["one", "two"]
        found.get("runs/three/family", 404)
        found.get("runs/three/fork/form?at=2", 404)
        found.post("runs/three/fork/preview", 404, at=2)
        hidden |= {"one"}
        runs = found.get("runs/two/family")["runs"]
        assert [one["run_id"] for one in runs] == ["two"]


def test_a_server_that_only_reads_has_families_and_forms_and_no_forks() -> None:
    with api(settings={"read_only": True}) as found:
        found.portal.call(lambda: found.executor.start(letter, "bees", run_id="one"))
        assert list(family(found, "one")) == ["one"]
        assert found.client.post("/api/runs/one/fork/preview", json={"at": 2}).status_code in (404, 405)


def test_what_others_wrote_into_a_fork_is_one_line_of_visible_text() -> None:
    with api() as found:
        found.start("plain", run_id="one")
        found.post("runs/one/fork", 201, at=2, update={"topic": HOSTILE + "\n" * 3 + "x" * 500}, run_id="two")
        (line,) = family(found, "two")["two"][2]
        assert "\u202e" not in line
        assert "\n" not in line
        assert len(line) < 120
