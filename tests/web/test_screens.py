"""The screens as the server renders them: what they show, and that all that others said is text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

from orchestrator.stores.sqlite import SQLiteStore
from tests.support.many_runs import copied
from tests.web.api import Api, api
from tests.web.mail import LETTER, QUESTION, THOUGHT, Post

HOSTILE = "<script>window.pwned = 1</script><b onclick=alert(1)>\u202egnp.exe\u0000"


@pytest.fixture(scope="module")
def post() -> Post:
    return Post(letters=3)


@pytest.fixture(scope="module")
def served(post: Post) -> Iterator[Api]:
    """A server with a run of each kind."""
    from tests.web.api import GRAPHS

    with api(*GRAPHS, post.graph, model=post.model) as found:
        found.start("plain", run_id="bees", labels={"customer": "acme"})
        found.start("letter", run_id="asks")
        found.post("runs", 201, graph="mail", input=QUESTION, run_id="mail", wait=True)
        found.post("runs", 201, graph="chat", input=HOSTILE, run_id="x", wait=True, labels={"a<b>": HOSTILE})
        yield found


def page(served: Api, path: str, **headers: str) -> str:
    answer = served.client.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def row(text: str, run_id: str) -> str:
    found = re.search(rf'<tr id="run-\w+" data-run="{run_id}".*?</tr>', text, re.DOTALL)
    assert found is not None, run_id
    return found[0]


def test_the_entry_leads_to_the_runs(served: Api) -> None:
    assert served.client.get("/").headers["location"] == "/runs"
    assert served.client.get("/?status=failed&q=a%20b").headers["location"] == "/runs?status=failed&q=a%20b"


def test_a_row_has_what_a_run_was_asked_and_what_it_said(served: Api) -> None:
    text = page(served, "/runs")
    assert "bees" in row(text, "bees")
    assert "pill completed" in row(text, "bees")
    assert "customer: acme" in row(text, "bees")
    mail = row(text, "mail")
    assert QUESTION in mail
    assert "Call send_email?" in mail
    assert "pill paused" in mail
    assert ">980<" in mail  # tokens
    assert text.index('data-run="x"') < text.index('data-run="bees"')


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("status=completed", {"bees"}),
        ("status=paused", {"asks", "mail", "x"}),
        ("graph=letter", {"asks"}),
        ("label=customer:acme", {"bees"}),
        ("q=parcel", {"mail"}),
        ("waiting=true", {"asks", "mail", "x"}),
        ("waiting=false", {"bees"}),
        ("failed_tool=*", set()),
        ("q=fischer", {"mail"}),  # only its journal has the word
        ("status=failed", set()),
    ],
)
def test_filters_stand_in_the_address(served: Api, query: str, there: set[str]) -> None:
    text = page(served, f"/runs?{query}")
    assert set(re.findall(r'data-run="(\w+)"', text)) == there
    if not there:
        assert "No run fits these filters" in text


def test_pages_follow_each_other(served: Api) -> None:
    first = page(served, "/runs?limit=3")
    older = re.search(r'id="older" rel="next" href="([^"]*)"', first)
    assert older is not None
    second = page(served, older[1].replace("&amp;", "&"))
    found = [re.findall(r'data-run="(\w+)"', text) for text in (first, second)]
    assert found == [["x", "mail", "asks"], ["bees"]]
    assert 'rel="next"' not in second


def test_pages_of_the_inbox_follow_each_other(served: Api) -> None:
    first = page(served, "/inbox?limit=2")
    assert '<p class="lead" id="summary">3 questions wait; these are the 2 oldest</p>' in first
    later = re.search(r'id="later" rel="next" href="([^"]*)"', first)
    assert later is not None
    second = page(served, later[1].replace("&amp;", "&"))
    assert "3 questions wait; these are later ones" in second
    assert 'id="later"' not in second
    assert '<a href="/inbox?limit=2">Oldest</a>' in second
    runs = [re.findall(r'<article[^>]* data-run="(\w+)"', text) for text in (first, second)]
    assert runs == [["asks", "mail"], ["x"]]


def test_a_card_has_the_call_what_led_to_it_and_what_its_form_is_made_from(served: Api) -> None:
    text = page(served, "/inbox")
    card = next(one for one in re.findall(r"<article.*?</article>", text, re.DOTALL) if 'data-run="mail"' in one)
    assert THOUGHT in card
    assert QUESTION in card
    assert "pill risk write" in card
    assert "irreversible" in card
    assert LETTER in card
    assert '"properties"' in card
    assert re.search(r'id="open-questions">3<', text)


def test_what_others_said_is_text(served: Api) -> None:
    for path in ("/runs", "/inbox", f"/runs?q={HOSTILE[:8]}", "/runs?label=a<b>:c", "/runs?graph=<script>"):
        text = page(served, path)
        assert not re.search(r"<script(?! type=\"(?:module|application/json)\")", text), path
        assert "<b onclick" not in text
        assert "\u202e" not in text
        assert "\x00" not in text
    assert "\\u202e" in page(served, "/runs")


def test_a_page_that_has_not_changed_is_not_sent_again(served: Api) -> None:
    for path in ("/runs", "/inbox"):
        tag = served.client.get(path).headers["etag"]
        again = served.client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
    tag = served.client.get("/runs").headers["etag"]
    served.start("plain")
    assert served.client.get("/runs", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/runs/none", 404, "none"),
        ("/runs?status=bogus", 422, "status"),
        ("/nowhere<b>", 404, "there is no such address: GET /nowhere&lt;b&gt;"),
        ("/runs?after=nonsense", 422, "after"),
    ],
)
def test_what_goes_wrong_is_a_page_for_a_browser_and_a_problem_for_others(
    served: Api, path: str, status: int, said: str
) -> None:
    answer = served.client.get(path, headers={"Accept": "text/html,application/xhtml+xml"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert said in answer.text
    assert 'href="/runs"' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    other = served.client.get(path)
    assert (other.status_code, other.headers["content-type"]) == (status, "application/problem+json")
    api = served.client.get("/api" + path, headers={"Accept": "text/html"})
    assert api.headers["content-type"] == "application/problem+json"


def attributes_in(text: str) -> set[str]:
    """The names of the attributes of all elements of a page."""
    found: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.update(name for name, _ in attrs)

    Reader().feed(text)
    return found


def test_the_policy_of_a_screen_allows_its_own_files_only(served: Api) -> None:
    answer = served.client.get("/runs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not [name for name in attributes_in(answer.text) if name.startswith("on") or name == "style"]
    for file in re.findall(r'(?:src|href)="(/static/[^"]*)"', answer.text):
        found = served.client.get(file)
        assert found.status_code == 200, file
        assert found.headers["x-content-type-options"] == "nosniff"


def test_a_screen_is_a_page_whatever_a_client_accepts(served: Api) -> None:
    for path in ("/runs", "/inbox", "/workers", "/graphs", "/costs"):
        assert "<!DOCTYPE html>" in page(served, path, Accept="text/event-stream")


def test_an_argument_is_shown_to_its_end_however_long_it_is() -> None:
    with api() as found:
        found.post("runs", 201, graph="payment", input="a" * 100_000 + " and all the rest", run_id="long", wait=True)
        assert "a and all the rest" in found.client.get("/inbox").text


@pytest.mark.parametrize("path", ["/static/", "/static/../pages.py", "/static/%2e%2e/pages.py", "/static/nothing.js"])
def test_no_other_file_is_served(served: Api, path: str) -> None:
    assert served.client.get(path).status_code == 404


def test_a_bad_filter_says_what_is_wrong(served: Api) -> None:
    answer = served.client.get("/runs?status=odd")
    assert answer.status_code == 422
    assert "status" in answer.json()["detail"]


def test_authorize_is_asked_about_screens_and_their_rows(post: Post) -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        refused = action == "view_inbox" or (action == "view_runs" and run is not None and run.run_id == "secret")
        return None if refused else "ann"

    with api(settings={"authorize": authorize}) as found:
        found.start("plain", run_id="open")
        found.start("plain", run_id="secret")
        assert re.findall(r'data-run="(\w+)"', found.client.get("/runs").text) == ["open"]
        assert found.client.get("/inbox").status_code == 403


def test_a_server_that_only_reads_says_so_on_its_screens() -> None:
    with api(settings={"read_only": True}) as found:
        assert "data-read-only" in found.client.get("/runs").text
        assert found.client.get("/inbox").status_code == 200


@pytest.mark.full
def test_a_screen_costs_the_same_among_many_runs_as_among_few(tmp_path: Path) -> None:
    with api(store=f"sqlite:///{tmp_path}/runs.db") as found:
        found.start("plain", run_id="done")
        found.start("chat", run_id="asks")
        store = found.executor.store
        assert isinstance(store, SQLiteStore)
        statements: list[str] = []
        read = store._readers.read_now

        def traced(action: Callable[[Connection], Any]) -> Any:
            def watched(connection: Connection) -> Any:
                connection.set_trace_callback(statements.append)
                try:
                    return action(connection)
                finally:
                    connection.set_trace_callback(None)

            return read(watched)

        store._readers.read_now = traced  # type: ignore[method-assign]

        def costs() -> dict[str, tuple[int, int, int]]:
            told = {}
            for path in (
                "/runs",
                "/runs?status=paused",
                "/runs?label=team:t3",
                "/runs?q=bees",
                "/inbox",
                "/inbox?limit=5",
            ):
                page(found, path)  # what is read once is read
                counts = []
                for _ in range(
                    5
                ):  # the fewest: the server reads lists of its own beside a request, under load more often
                    statements.clear()
                    text = page(found, path)
                    counts.append(sum(one.startswith(("SELECT runs.", "SELECT count")) for one in statements))
                told[path] = min(counts), text.count("<tr id="), text.count("<article ")
            return told

        found.portal.call(partial(copied, store, ["done", "asks"], 200))
        few = costs()
        found.portal.call(partial(copied, store, ["done", "asks"], 1800, first=200))
        many = costs()
        assert {path: count for path, (count, _, _) in many.items()} == {
            path: count for path, (count, _, _) in few.items()
        }
        assert {path: (rows, cards) for path, (_, rows, cards) in many.items()} == {
            "/runs": (50, 0), "/runs?status=paused": (50, 0), "/runs?label=team:t3": (50, 0), "/runs?q=bees": (50, 0),
            "/inbox": (0, 50), "/inbox?limit=5": (0, 5),
        }  # fmt: skip
