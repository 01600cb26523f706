"""The screen of the costs as the server renders it, the filters of the list of runs behind it, and its stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from orchestrator.stores.rows import ReplayFacts
from tests.web.api import Api, api
from tests.web.costs import NOT_COUNTED, at, called, spent, used

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp, %&?#"


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    """A server with runs of three days, two graphs and three models."""
    with api() as found:
        spent(found, "old", "2026-01-30", used("large", 900, 0.5), labels={"team": "maps"}, seconds=4.0)
        spent(found, "bad", "2026-02-01", used("large", 100, 0.25), graph="other", status="failed", seconds=1.0)
        spent(found, "new", "2026-02-01", used("free", 700, 0.0), used("small", 300, 0.001), labels={"team": "search"})
        spent(found, "tools", "2026-02-02", called("fetch", 4, 1), called("read", 2), labels={"team": HOSTILE})
        yield found


def page(served: Api, query: str = "") -> str:
    answer = served.client.get(f"/costs{query}")
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def table(text: str) -> list[dict[str, str]]:
    """The rows: the group's name, and the text of each column."""
    found = []
    for row in re.findall(r"<tr id=.*?</tr>", text, re.DOTALL):
        name = re.search(r'<td class="name">(?:<i [^>]*></i>)?<a [^>]*>([^<]*)</a>', row)
        cells = re.findall(r'<td class="n (\w+)[^"]*"><span class="what">[^<]*</span> <\w+[^>]*>([^<]*)<', row)
        assert name is not None
        found.append({"name": unescape(name[1]), **dict(cells)})
    return found


def leads(served: Api, text: str, name: str) -> list[str]:
    """The runs that the list has to which the bar of a group leads, with the newest first."""
    for row in re.findall(r"<tr id=.*?</tr>", text, re.DOTALL):
        if f">{name}</a>" in unescape(row):
            link = re.search(r'<td class="bars"><a href="([^"]*)"', row)
            assert link is not None
            listed = served.client.get(unescape(link[1]))
            assert listed.status_code == 200, listed.text
            return re.findall(r'data-run="([^"]*)"', listed.text)
    raise AssertionError(f"no group {name!r}")


def test_days_come_with_the_newest_first_and_lead_to_their_runs(served: Api) -> None:
    text = page(served)
    assert table(text) == [
        {"name": "2026-02-02", "cost": "", "tokens": "0", "runs": "1", "p50": "2.0 s", "p95": "2.0 s", "failed": "0",
         "tools": "16.7%"},
        {"name": "2026-02-01", "cost": "≥ 0.2510", "tokens": "1,100", "runs": "2", "p50": "1.0 s", "p95": "2.0 s",
         "failed": "50.0%", "tools": ""},
        {"name": "2026-01-30", "cost": "0.5000", "tokens": "900", "runs": "1", "p50": "4.0 s", "p95": "4.0 s",
         "failed": "0", "tools": ""},
    ]  # fmt: skip
    assert sorted(leads(served, text, "2026-02-01")) == ["bad", "new"]
    assert leads(served, text, "2026-01-30") == ["old"]
    assert "4 runs, 2,000 tokens, cost ≥ 0.7510 USD, 25.0% failed" in text
    assert "What a fork took over from its parent is in no sum." in text


def test_days_are_a_chart_that_has_those_without_runs_too(served: Api) -> None:
    text = page(served)
    said = re.findall(r"<title>(\d{4}[^<]*)</title>", text)
    assert said == ["2026-01-30: 0.5000", "2026-01-31: nothing", "2026-02-01: 0.2510", "2026-02-02: nothing"]
    assert "<figure" not in page(served, "?since=2026-01-30&until=2026-01-30"), "one day is no chart"
    assert "<figure" not in page(served, "?by=graph")


def test_a_model_without_a_price_does_not_cost_nothing(served: Api) -> None:
    text = page(served, "?by=model")
    costs = {row["name"]: row["cost"] for row in table(text)}
    assert costs == {"large": "0.7500", "small": "0.0010", "free": "no price known"}
    assert "No price is known for free (700 tokens)" in text
    assert "No price" not in page(served, "?graph=other")


def test_what_caches_saved_is_said_where_it_is_known() -> None:
    with api() as found:
        spent(found, "one", "2026-02-01", used("large", 900, 0.5), saved=0.125)
        spent(found, "two", "2026-02-02", used("large", 900, 0.5), saved=0.25)
        text = page(found, "?by=model")
        assert "2 runs, 1,800 tokens, cost 1.00 USD, 0.3750 saved by providers' caches" in unescape(text)
        assert "Saved by providers' caches 0.2500." in unescape(page(found))
        assert table(page(found))[0]["saved"] == "0.2500"
        assert "aved" not in page(found, "?until=2026-01-01")
        (row,) = found.get("stats?by=")["groups"]
        assert row["cache_savings"] == 0.375


def test_of_parts_of_runs_it_is_said_that_what_was_saved_is_not_known() -> None:
    with api() as found:
        spent(found, "one", "2026-02-01", used("large", 900, 0.5), saved=0.125)
        for by in ("model", "node", "node,day"):
            names = ("cache_savings", "replay_savings", "replayed_calls")
            assert {row[name] for row in found.get(f"stats?by={by}")["groups"] for name in names} == {None}, by
        said = "What was saved is known for whole runs"
        assert said in page(found, "?by=model&show=saved")
        assert said in page(found, "?split=model&show=saved")
        assert said not in page(found, "?by=model")
        assert said not in page(found, "?show=saved")


def test_days_split_and_each_part_leads_to_its_runs(served: Api) -> None:
    text = page(served, "?split=model")
    assert [(row["name"], row["cost"]) for row in table(text)] == [
        ("2026-02-02", ""),
        ("2026-02-01", "≥ 0.2510"),
        ("large", "0.2500"),
        ("small", "0.0010"),
        ("free", "no price known"),
        ("2026-01-30", "0.5000"),
        ("large", "0.5000"),
    ]
    assert leads(served, text, "small") == ["new"]
    assert [row["name"] for row in table(page(served, "?split=graph&show=tokens"))][:3] == [
        "2026-02-02",
        "plain",
        "2026-02-01",
    ]
    assert "read" in [row["name"] for row in table(page(served, "?split=tool"))]
    team = unescape(HOSTILE).replace("\u202e", "\\u202e")
    parts = table(page(served, "?by=graph&split=label:team"))
    assert {"maps", "search", team, "without the label team"} <= {row["name"] for row in parts}


def test_each_number_leads_to_the_runs_it_is_made_of(served: Api) -> None:
    text = page(served)
    (row,) = [one for one in re.findall(r"<tr id=.*?</tr>", text, re.DOTALL) if "2026-02-01</a>" in one]
    links = dict(re.findall(r'<td class="n (\w+)[^"]*"><span class="what">[^<]*</span> <a href="([^"]*)"', row))
    listed = {
        name: re.findall(r'data-run="(\w+)"', served.client.get(unescape(link)).text) for name, link in links.items()
    }
    assert listed == {
        "cost": ["bad", "new"],
        "tokens": ["new", "bad"],
        "runs": ["new", "bad"],
        "p50": ["new", "bad"],
        "p95": ["new", "bad"],
        "failed": ["bad"],
    }


def test_what_replays_saved_is_said(served: Api) -> None:
    with api() as found:
        spent(found, "one", "2026-02-01", used("large", 900, 0.5))
        spent(found, "again", "2026-02-01", replay=ReplayFacts(True, 3, 900, 0.5))
        spent(found, "free", "2026-02-02", replay=ReplayFacts(False, 2, 10, 0.0))
        text = page(found)
        assert "0.5000 saved by replays (5 calls)" in text
        assert [row.get("saved") for row in table(text)] == ["no price known", "0.5000"]
        (row,) = found.get("stats?by=")["groups"]
        assert (row["replay_savings"], row["replayed_calls"]) == (0.5, 5)
        listed = found.client.get("/runs?begun_since=2026-02-01&begun_until=2026-02-01").text
        assert re.findall(r'data-run="(\w+)"', listed) == ["one"], "replays are hidden"


def test_the_currency_is_named() -> None:
    with api(settings={"currency": "EUR"}) as found:
        spent(found, "one", "2026-02-01", used("large", 900, 0.5))
        assert found.get("stats")["currency"] == "EUR"
        assert "cost 0.5000 EUR" in page(found)
        assert "Cost, EUR" in page(found)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("by=graph", ["plain", "other"]),
        ("by=graph&show=failed", ["other", "plain"]),
        ("by=node&show=tokens", ["think", "think", "act"]),
        ("by=tool&show=tools", ["fetch", "read"]),
        ("by=label:team", ["maps", "search", "without the label team", unescape(HOSTILE).replace("\u202e", "\\u202e")]),
        ("by=graph&label=team:maps", ["plain"]),
        ("since=2026-02-01", ["2026-02-02", "2026-02-01"]),
        ("until=2026-02-01", ["2026-02-01", "2026-01-30"]),
        (f"since={at('2026-02-01')}&until={at('2026-02-02')}", ["2026-02-01"]),
        ("since=&until=2026-01-31", ["2026-01-30"]),
        ("days=1", []),
    ],
)
def test_groups_are_those_of_the_address(served: Api, query: str, names: list[str]) -> None:
    found = [row["name"] for row in table(page(served, f"?{query}"))]
    assert (sorted(found) if "label:" in query else found) == (sorted(names) if "label:" in query else names)


def test_groups_lead_to_their_runs(served: Api) -> None:
    assert leads(served, page(served, "?by=graph"), "other") == ["bad"]
    assert leads(served, page(served, "?by=graph&since=2026-02-01"), "plain") == ["tools", "new"]
    assert leads(served, page(served, "?by=label:team"), "maps") == ["old"]
    assert leads(served, page(served, "?by=label:team"), HOSTILE.replace("\u202e", "\\u202e")) == ["tools"]
    assert leads(served, page(served, "?by=node"), "act") == ["tools"]
    assert leads(served, page(served, "?by=node"), "think") == ["new", "old"]
    assert leads(served, page(served, "?by=model"), "large") == ["bad", "old"]
    assert leads(served, page(served, "?by=tool"), "read") == ["tools"]
    failed = re.search(r'<td class="n tools"[^/]*/span> <a href="([^"]*)"', page(served, "?by=tool"))
    assert failed is not None
    assert re.findall(r'data-run="(\w+)"', served.client.get(unescape(failed[1])).text) == ["tools"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("by=nope", "use day, graph, model, tool, node or label:KEY"),
        ("by=day,graph", "use day, graph"),
        ("by=label:", "use day, graph"),
        ("days=0", "days"),
        ("days=7&since=2026-01-01", "give days, or since and until"),
        ("since=2026-02-30", "since"),
        ("since=yesterday", "since"),
        ("until=9999-12-31T23:59:59", "until"),
        ("show=money", "show"),
        ("by=model&split=graph", "split"),
        ("split=day", "split"),
        ("split=nope", "use day, graph"),
    ],
)
def test_an_address_that_means_nothing_says_so(served: Api, query: str, why: str) -> None:
    answer = served.client.get(f"/costs?{query}", headers={"Accept": "text/html"})
    assert answer.status_code == 422
    assert why in unescape(answer.text)


@pytest.mark.parametrize("query", ["until=9999-12-31", "since=0001-01-01", "since=-1e300&until=1e300", "days=3660"])
def test_a_range_of_any_length_is_answered(served: Api, query: str) -> None:
    assert served.client.get(f"/costs?{query}").status_code == 200
    assert served.client.get(f"/api/stats?{query}").status_code == 200 or "days" in query


def test_a_store_without_runs_says_how_one_begins() -> None:
    with api() as found:
        text = page(found)
        assert "No runs yet" in text
        assert "No run fits these filters" in page(found, "?days=7")


def test_runs_of_earlier_versions_are_counted_apart() -> None:
    with api() as found:
        spent(found, "old", "2026-01-30", NOT_COUNTED)
        assert "1 runs of an earlier version are in no sum" in page(found)
        assert table(page(found, "?by=model"))[0]["name"] == "of an earlier version"


@pytest.mark.full
def test_of_very_many_groups_those_with_most_are_shown() -> None:
    with api() as found:
        totals = [used(f"model-{number:04}", 10, 0.001 * number, node="n") for number in range(1, 1501)]
        spent(found, "many", "2026-01-30", *totals)
        text = page(found, "?by=model")
        assert [row["name"] for row in table(text)][:2] == ["model-1500", "model-1499"]
        assert len(table(text)) == 200
        assert "1,300 groups with less in the column Cost are not shown" in text
        assert len(text) < 300_000


def test_a_page_that_is_asked_for_again_has_a_body_only_if_it_changed(served: Api) -> None:
    first = served.client.get("/costs?by=graph")
    again = {"If-None-Match": first.headers["etag"]}
    assert served.client.get("/costs?by=graph", headers=again).status_code == 304
    assert served.client.get("/costs?by=model", headers=again).status_code == 200


def test_a_stream_says_when_the_sums_are_others() -> None:
    with api(settings={"poll": 0.05}) as found:
        range_ = "since=2026-01-01&until=2026-01-31"
        events = found.stream(f"stats?by=&{range_}", {"Accept": "text/event-stream"})
        assert next(events) == {"type": "ready"}
        spent(found, "outside", "2026-02-05", used("large", 900, 0.5))
        spent(found, "inside", "2026-01-05", used("large", 900, 0.5))
        assert next(events) == {"type": "changed"}
        assert found.get(f"stats?by=&{range_}")["groups"][0]["runs"] == 1
        events.close()


def runs(served: Api, **params: Any) -> list[str]:
    """The ids of all runs that a filter selects, page by page."""
    found: list[str] = []
    while True:
        answer = served.get("runs", params={"limit": 2, **params})
        found += [row["run_id"] for row in answer["runs"]]
        if answer["cursor"] is None:
            return found
        params["after"] = answer["cursor"]


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({"begun_since": "2026-02-01"}, ["tools", "new", "bad"]),
        ({"begun_until": "2026-02-01"}, ["new", "bad", "old"]),
        ({"begun_since": "2026-01-30", "begun_until": "2026-01-30"}, ["old"]),
        ({"begun_since": "2026-01-31", "begun_until": "2026-01-31"}, []),
        ({"begun_since": at("2026-02-01"), "begun_until": at("2026-02-02")}, ["new", "bad"]),
        ({"begun_until": "2026-02-01", "status": "completed"}, ["new", "old"]),
        ({"begun_since": "2026-02-01T13:00:00Z"}, ["tools"]),
        ({"begun_until": "2026-02-01", "q": "new"}, ["new"]),
        ({"begun_since": "2026-02-02", "q": "new"}, []),
        ({"begun_until": "2026-02-01", "label": "team:maps"}, ["old"]),
    ],
)
def test_runs_are_listed_by_when_they_began(served: Api, params: dict[str, Any], ids: list[str]) -> None:
    assert runs(served, **params) == ids
