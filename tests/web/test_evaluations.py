"""Evaluations on the page: the list, the table of one, and wrong rows that lead to their runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from orchestrator import Executor
from orchestrator.evaluation import RecordedRuns, counterfactual, evaluate
from orchestrator.evaluation.kept import NAMESPACE
from tests.evaluation.graphs import Counted, direct, refined
from tests.web.api import Api, api, plain

EVIL = "<script>window.pwned=1</script>"
SECRET = "sk-live-0123456789abcdef0123456789"


@pytest.fixture
def served() -> Iterator[Api]:
    with api(plain) as found:
        yield found


def evaluated(served: Api, name: str, *words: str, **options: Any) -> Any:
    data = [{"id": f"{word} {EVIL}", "question": word, "expected": word} for word in words]
    graphs = [direct(), refined()]
    return served.portal.call(
        partial(evaluate, data, graphs, models=Counted(wrong="b c"), store=served.executor.store, name=name, **options)
    )


def test_the_list_is_empty_at_first_and_then_has_each_evaluation(served: Api) -> None:
    assert "No evaluation is there" in served.client.get("/evaluations").text
    evaluated(served, "one <b>?%", "a", "b")
    page = served.client.get("/evaluations").text
    assert "2 of 4" not in page
    assert "4 of 4" in page
    assert EVIL not in page
    assert "<b>?%" not in page
    assert served.client.get("/evaluations/one%20%3Cb%3E%3F%25").status_code == 200
    assert 'href="/evaluations/one%20%3Cb%3E%3F%25"' in page


def test_an_evaluation_has_its_table_and_every_wrong_row_opens_its_run(served: Api) -> None:
    found = evaluated(served, "one", "a", "b", f"c {SECRET}")
    page = served.client.get("/evaluations/one").text
    assert EVIL not in page
    assert SECRET not in page
    for one in found.wrong:
        assert f'href="/runs/{one.run_id}"' in page
        assert served.client.get(f"/runs/{one.run_id}").status_code == 200
    assert "data:image/svg+xml;base64," in page
    assert "do not differ" in page
    some = served.client.get("/evaluations/one", params={"variant": "direct"}).text
    assert "repeat" not in some
    assert all((one.run_id in some) == (one.variant == "direct") for one in found.wrong)
    assert served.client.get("/evaluations/one", params={"skip": 100}).status_code == 200
    assert served.client.get("/evaluations/two").status_code == 404
    tag = served.client.get("/evaluations/one").headers["etag"]
    assert served.client.get("/evaluations/one", headers={"If-None-Match": tag}).status_code == 304


def test_what_a_program_stored_under_the_name_does_no_harm(served: Api) -> None:
    found = evaluated(served, "one", "a").to_json()
    odd = {**found, "variants": [{**found["variants"][0], "accuracy": "<b>"}]}
    cells = found["variants"][0]
    far = {**found, "variants": [{**cells, "name": name, "accuracy": -(10**30)} for name in "ab"]}
    huge = {**found, "variants": [{**cells, "accuracy": 10**400}]}
    stored = {
        "text": "x", "empty": {}, "list": [1], "odd": odd, "age": {**found, "updated": "x"}, "huge": huge,
        "cost": {**found, "cost": "x"}, "count": {**found, "wrong_count": "x"},
    }  # fmt: skip
    served.portal.call(served.executor.memory.put, NAMESPACE, "far", far)
    assert served.client.get("/evaluations/far").status_code == 200
    for name, value in stored.items():
        served.portal.call(served.executor.memory.put, NAMESPACE, name, value)
        assert served.client.get(f"/evaluations/{name}").status_code == 404
    assert served.client.get("/evaluations").status_code == 200


def test_a_principal_sees_only_the_wrong_rows_of_its_runs() -> None:
    seen: list[str] = []

    def authorize(request: Any, action: str, run: Any) -> str | None:
        seen.append(action)
        hidden = run is not None and run.labels.get("evaluation.variant") == "refined"
        return None if hidden else "ann"

    with api(plain, settings={"authorize": authorize}) as served:
        found = evaluated(served, "one", "a", "b")
        page = served.client.get("/evaluations/one").text
        assert {one.variant for one in found.wrong} == {"direct", "refined"}
        assert all((f"/runs/{one.run_id}" in page) == (one.variant == "direct") for one in found.wrong)
        assert "view_evaluation" in seen


def test_the_api_has_figures_differences_and_wrong_rows_without_secrets(served: Api) -> None:
    assert served.get("evaluations") == {"evaluations": [], "cursor": None}
    found = evaluated(served, "one", "a", "b", f"c {SECRET}")
    (row,) = served.get("evaluations")["evaluations"]
    assert (row["name"], row["kind"], row["cases"], row["done"]) == ("one", "evaluation", 6, 6)
    assert row["accuracy"] == max(one.accuracy for one in found.variants)
    one = served.get("evaluations/one")
    assert SECRET not in str(one)
    figures = one["figures"]
    assert [variant["accuracy"] for variant in figures["variants"]] == [each.accuracy for each in found.variants]
    assert [pair["p"] for pair in figures["differences"]] == [pair.p for pair in found.differences]
    assert [wrong["run_id"] for wrong in figures["wrong"]] == [wrong.run_id for wrong in found.wrong]
    assert (one["replayed"], one["more"]) == (None, False)
    some = served.get("evaluations/one?variant=direct")["figures"]["wrong"]
    assert {wrong["variant"] for wrong in some} == {"direct"}
    assert served.get("evaluations/one?skip=100")["figures"]["wrong"] == []
    assert served.get("evaluations/two", 404)["type"].endswith("evaluation-unknown")
    for query in ("limit=26", "limit=0", "after=%00", "skip=1"):
        served.get(f"evaluations?{query}", 422)


def test_lists_come_in_pages_each_of_which_reads_a_few_results(served: Api) -> None:
    stored = evaluated(served, "n00", "a").to_json()
    names = [f"n{number:02}" for number in range(30)]
    for name in names:
        served.portal.call(served.executor.memory.put, NAMESPACE, name, {**stored, "name": name})
    served.portal.call(served.executor.memory.put, (*NAMESPACE, "own"), "other", stored)
    found, after = [], ""
    while after is not None:
        part = served.get(f"evaluations?limit=7&after={after}")
        assert len(part["evaluations"]) <= 7
        found += [one["name"] for one in part["evaluations"]]
        after = part["cursor"]
    assert found == names
    first = served.client.get("/evaluations").text
    assert (first.count('id="evaluation-'), 'href="?after=n24"' in first) == (25, True)
    last = served.client.get("/evaluations?after=n24").text
    assert (last.count('id="evaluation-'), "First page" in last, "Next page" in last) == (5, True, False)
    assert "None on this page" in served.client.get("/evaluations?after=z").text


def what_if(served: Api, **options: Any) -> Any:
    """Four recorded runs, two of which another prompt answers otherwise."""

    async def made() -> Any:
        async with Executor(served.executor.store, graphs=[direct()], model=Counted()) as executor:
            for at, word in enumerate(("a", "b", f"c {SECRET}", EVIL)):
                await executor.start("direct", word, run_id=f"run-{at}", labels={"team": word[0]})
        runs = RecordedRuns("direct", served.executor.store)
        model = Counted(wrong=f"b {SECRET} {EVIL}")
        return await counterfactual(runs, direct("Please:", "direct"), model=model, **options)

    return served.portal.call(made)


def test_what_another_prompt_would_have_answered_is_on_the_page_with_both_runs(served: Api) -> None:
    found = what_if(served)
    assert (found.runs, found.changed_count) == (4, 3)
    (row,) = served.get("evaluations")["evaluations"]
    assert (row["name"], row["kind"], row["cases"], row["accuracy"]) == (found.name, "counterfactual", 4, 0.25)
    one = served.get(f"evaluations/{found.name}")
    assert one["figures"] is None
    assert one["replayed"]["paid"]["calls"] == 4
    shown = [(each["run_id"], each["replay_id"]) for each in one["replayed"]["runs"]]
    assert shown == [(each.run_id, each.replay_id) for each in found.changed]
    page = served.client.get(f"/evaluations/{found.name}").text
    assert SECRET not in page + str(one)
    assert EVIL not in page
    for ids in shown:
        for run_id in ids:
            assert f'href="/runs/{run_id}"' in page
            assert served.client.get(f"/runs/{run_id}").status_code == 200
    assert "what-if" in served.client.get("/evaluations").text
    again = what_if(served, name="mine")
    assert [each["name"] for each in served.get("evaluations")["evaluations"]] == ["mine", found.name]
    assert again.changed == found.changed


def test_what_if_shows_only_answers_of_runs_that_the_principal_may_see() -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if run is not None and run.labels.get("team") == "b" else "ann"

    with api(plain, settings={"authorize": authorize}) as served:
        found = what_if(served)
        seen = {one["run_id"] for one in served.get(f"evaluations/{found.name}")["replayed"]["runs"]}
        assert {one.run_id for one in found.changed} - seen == {"run-1"}
        assert "run-1" not in served.client.get(f"/evaluations/{found.name}").text
