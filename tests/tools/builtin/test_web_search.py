"""The tool `web_search`: an instance of SearXNG on this machine, recorded results, and others' answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator import ToolResult
from orchestrator.errors import ToolError
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.web_search import Hit, JsonSearch, RecordedSearch, SearchProvider, SearXNG, WebSearch
from tests.tools.builtin.web import Web, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    """One server for all tests here."""
    with serving() as web:
        yield web


@pytest.fixture
def web(server: Web) -> Web:
    """The same, which has forgotten what it was asked and what it gave."""
    server.pages.clear()
    server.asked.clear()
    return server


def answers(web: Web, results: object) -> None:
    web.page("/search", json.dumps({"query": "x", "results": results, "answers": []}), "application/json")


async def call(tool: WebSearch, query: str, **args: Any) -> ToolResult:
    return await tool.invoke(tool.validate({"query": query, **args}))


async def refused(tool: WebSearch, query: str = "x") -> str:
    result = await call(tool, query)
    assert result.failed, result.text
    assert "Unexpected" not in str(result.error)
    return str(result.error)


async def test_an_instance_is_asked_for_json_and_its_results_are_given(web: Web) -> None:
    found = {
        "title": "AnyIO",
        "url": "https://anyio.readthedocs.io/",
        "content": "Structured.",
        "engine": "x",
        "score": 1,
    }
    answers(web, [found, {**found, "url": "https://b.example/"}, {**found, "url": "https://c.example/"}])
    for url in (web.url, web.url + "/", web.url + "/search"):
        web.asked.clear()
        result = await call(WebSearch(url), " trio & asyncio=1#ü ", count=2)
        assert result.output == [
            {"title": "AnyIO", "url": "https://anyio.readthedocs.io/", "snippet": "Structured."},
            {"title": "AnyIO", "url": "https://b.example/", "snippet": "Structured."},
        ]
        (asked,) = web.asked
        assert urlsplit(asked).path == "/search"
        assert parse_qs(urlsplit(asked).query) == {"q": ["trio & asyncio=1#ü"], "format": ["json"]}
    await call(WebSearch(provider=SearXNG(web.url, params={"language": "de", "q": "no"})), "x")
    assert parse_qs(urlsplit(web.asked[-1]).query) == {"language": ["de"], "q": ["x"], "format": ["json"]}


async def test_the_environment_says_which_instance(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    (tool,) = tools_from_ref("web_search")
    assert (tool.name, tool.risk, tool.effect, tool.group) == ("web_search", "read", "read", "web_search")
    assert isinstance(tool, WebSearch)
    monkeypatch.delenv("ORCHESTRATOR_SEARCH_URL", raising=False)
    for one in (tool, WebSearch()):
        said = await refused(one)
        assert "set ORCHESTRATOR_SEARCH_URL to the address of a SearXNG instance" in said
        assert "or make the tool with it, WebSearch('http://...')" in said
    answers(web, [])
    monkeypatch.setenv("ORCHESTRATOR_SEARCH_URL", web.url)
    assert (await call(tool, "x")).output == []


async def test_what_strangers_write_is_cut_and_cleaned(web: Web) -> None:
    answers(
        web,
        [
            {"title": "a\n\n2. b\x1b[2J\u202e" + "t" * 500, "url": "https://a.example/", "content": "s\r\n" * 1000},
            {"title": "no address", "url": "javascript:alert(1)", "content": ""},
            {"title": "no address", "url": "file:///etc/passwd"},
            {"title": "no address", "url": "https://a.example/ b"},
            {"title": "no address", "url": "https://a.example/" + "x" * 3000},
            {"title": None, "url": 5},
            "no result",
            {"title": {"a": 1}, "url": "https://b.example/", "content": ["x"]},
        ],
    )
    result = await call(WebSearch(web.url), "x", count=20)
    assert isinstance(result.output, list)
    first, second = result.output
    assert isinstance(first, dict)
    assert str(first["title"]).startswith("a 2. b [2J t")
    assert len(str(first["title"])) == 200
    assert len(str(first["snippet"])) == 500
    assert second == {"title": "", "url": "https://b.example/", "snippet": ""}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, "Forbidden", "add json to search.formats"),
        (429, "Too many", "answered 429"),
        (500, "", "answered 500"),
        (200, "<html>", "did not answer with JSON"),
        (200, "[" * 100_000, "did not answer with JSON"),
        (200, "[]", "without 'results'"),
        (200, '{"results": {}}', "without 'results'"),
    ],
)
async def test_answers_that_are_none_are_told_with_the_mend(web: Web, status: int, body: str, said: str) -> None:
    web.page("/search", body, "application/json", status)
    assert said in await refused(WebSearch(web.url))


async def test_an_instance_cannot_lead_elsewhere_or_send_too_much(web: Web) -> None:
    web.moved("/search", "/other")
    assert "redirects more than" in await refused(WebSearch(web.url))
    assert len(web.asked) == 1
    web.page("/search", "x" * 2000, "application/json")
    assert "more than 1000 bytes" in await refused(WebSearch(provider=SearXNG(web.url, limit=1000)))
    assert "could not be fetched" in await refused(WebSearch("http://127.0.0.1:1"))
    assert "only http and https" in await refused(WebSearch("file:///etc"))


async def test_no_token_or_password_is_told_in_errors(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors reach the model and the journal."""
    for url in ("http://bob:s3cret@127.0.0.1:1", "http://127.0.0.1:1/?token=s3cret", "http://127.0.0.1:1/#s3cret"):
        with pytest.raises(ValueError, match=r"leave them out|SearXNG\(\.\.\., params=") as raised:
            WebSearch(url)
        assert "s3cret" not in str(raised.value)
        monkeypatch.setenv("ORCHESTRATOR_SEARCH_URL", url)
        said = await refused(WebSearch())
        assert said.startswith("ORCHESTRATOR_SEARCH_URL: ")
        assert "s3cret" not in said
    web.moved("/search", "/other?token=s3cret")
    for url in ("http://127.0.0.1:1", web.url):
        tool = WebSearch(provider=SearXNG(url, params={"token": "s3cret"}))
        said = await refused(tool)
        assert f"{url}/search" in said
        assert "s3cret" not in said
    for packed in ("br", "gzip"):
        web.page("/search", b"no gzip", "application/json", Content_Encoding=packed)
        assert "s3cret" not in await refused(tool)
    web.page("/search", b"x", "application/json", status=500)
    assert "s3cret" not in await refused(tool)


async def test_characters_that_are_none_do_not_spoil_the_others(web: Web) -> None:
    found = {"title": "a\ud800b\U000e0041", "url": "https://a.example/", "content": "c"}
    answers(web, [{**found, "url": "https://a.example/\udc00"}, found])
    assert (await call(WebSearch(web.url), "x")).output == [
        {"title": "a b", "url": "https://a.example/", "snippet": "c"}
    ]


async def test_odd_questions_are_not_asked(web: Web) -> None:
    assert "is empty" in await refused(WebSearch(web.url), "  ")
    assert "longer than 500" in await refused(WebSearch(web.url), "x" * 501)
    assert not web.asked


async def test_recorded_results_need_no_network(tmp_path: Path) -> None:
    hits = [Hit("AnyIO", "https://anyio.readthedocs.io", "s"), Hit("Trio", "https://trio.readthedocs.io")]
    tool = WebSearch(provider=RecordedSearch({"Structured  concurrency": hits}), limit=1)
    assert (await call(tool, "structured concurrency")).output == [
        {"title": "AnyIO", "url": "https://anyio.readthedocs.io", "snippet": "s"}
    ]
    assert "there is: structured concurrency" in await refused(tool, "else")
    path = tmp_path / "searches.json"
    path.write_text(json.dumps({"x": [{"title": "A", "url": "http://a.example"}]}))
    result = await call(WebSearch(provider=RecordedSearch.of_file(path)), "X")
    assert result.output == [{"title": "A", "url": "http://a.example", "snippet": ""}]
    for wrong in ("[]", '{"x": [{"name": 1}]}', "{", '{"x": [{"title": 1, "url": "http://a.example"}]}'):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="contains no recorded searches"):
            RecordedSearch.of_file(path)


async def test_a_provider_of_ones_own() -> None:
    class Mine:
        async def search(self, query: str, limit: int) -> Sequence[Hit]:
            if query == "broken":
                raise ToolError("out of order")
            return [Hit(f"{query} {number}", f"https://{number}.example/") for number in range(100)]

    mine = Mine()
    assert isinstance(mine, SearchProvider)
    tool = WebSearch(provider=mine, limit=3)
    result = await call(tool, "x", count=50)
    assert isinstance(result.output, list)
    assert len(result.output) == 3
    assert await refused(tool, "broken") == "out of order"
    with pytest.raises(TypeError, match="not both"):
        WebSearch("http://127.0.0.1", provider=mine)


async def test_a_provider_with_a_form_of_its_own_is_asked_by_a_template(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "AnyIO", "link": {"href": "https://anyio.example/"}, "about": "tasks"}, "odd", {"name": 3}]
    web.page("/v1", json.dumps({"web": {"found": rows}}), "application/json")
    monkeypatch.setenv("SEARCH_KEY", "k-12345678")
    provider = JsonSearch(
        f"{web.url}/v1?text={{searchTerms}}&n={{count}}",
        results="web.found", title="name", url="link.href", snippet="about", headers={"X-Key": "env:SEARCH_KEY"},
    )  # fmt: skip
    found = await call(WebSearch(provider=provider), "tasks & trees", count=3)
    assert found.output == [{"title": "AnyIO", "url": "https://anyio.example/", "snippet": "tasks"}]
    assert web.asked[-1] == "/v1?text=tasks+%26+trees&n=3"
    assert web.headers[-1]["x-key"] == "k-12345678"
    monkeypatch.delenv("SEARCH_KEY")
    assert "environment variable SEARCH_KEY" in await refused(WebSearch(provider=provider))


async def test_suggestions_as_opensearch_has_them_are_results(web: Web) -> None:
    said = ["any", ["AnyIO", "Anything"], ["tasks"], ["https://anyio.example/", "https://any.example/"]]
    web.page("/w", json.dumps(said), "application/json")
    found = await call(WebSearch(provider=JsonSearch(f"{web.url}/w?search={{searchTerms}}")), "any")
    assert found.output == [
        {"title": "AnyIO", "url": "https://anyio.example/", "snippet": "tasks"},
        {"title": "Anything", "url": "https://any.example/", "snippet": ""},
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [("[]", "without 'results'"), ('{"results": {}}', "without 'results'"), ("x", "did not answer with JSON")],
)
async def test_answers_of_another_form_are_told(web: Web, answer: str, said: str) -> None:
    web.page("/w", answer, "application/json")
    assert said in await refused(WebSearch(provider=JsonSearch(f"{web.url}/w?search={{searchTerms}}&key=secret-1")))


def test_templates_that_cannot_be_filled_in_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no \{searchTerms\}"):
        JsonSearch("https://search.example/?q=")
    with pytest.raises(ValueError, match="user name or password"):
        JsonSearch("https://a:b@search.example/?q={searchTerms}")
