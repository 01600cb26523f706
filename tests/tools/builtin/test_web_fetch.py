"""The tool `web_fetch`: what it refuses to reach, and what it makes of what it reaches."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import ToolResult
from orchestrator.errors import GraphUnknown
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.web_fetch import WebFetch
from orchestrator.tools.builtin.web_fetch.client import _context
from orchestrator.tools.builtin.web_fetch.readable import _REST, Quotes, readable
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
    server.headers.clear()
    return server


def here(**options: Any) -> WebFetch:
    """A tool that may reach this machine."""
    return WebFetch(**{"allow_private": True, "ports": None, **options})


async def call(tool: WebFetch, url: str, **args: Any) -> ToolResult:
    return await tool.invoke(tool.validate({"url": url, **args}))


async def text(tool: WebFetch, url: str, **args: Any) -> str:
    result = await call(tool, url, **args)
    assert result.error is None, result.error
    return result.text


async def refused(tool: WebFetch, url: str, **args: Any) -> str:
    result = await call(tool, url, **args)
    assert result.failed, result.text
    assert "Unexpected" not in str(result.error)
    return str(result.error)


# -- what is not reached ---------------------------------------------------------------------------------------------

HOSTS = [
    "127.0.0.1", "127.1.2.3", "localhost", "localhost.", "LOCALHOST", "0.0.0.0", "10.0.0.1", "172.16.0.1",
    "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1",
    "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    # numbers that systems read as addresses
    "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0", "127.0.0.1.",
    "127.0.0.01", "0x7f.1", "1.0x", "4294967297",
    # IPv6
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]",
    "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[2002:7f00:1::]", "[2002:a00:1::1]",
    "[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]", "[64:ff9b:1::1]", "[2001:0:7f00:1::]", "[2001:db8::1]",
    "[2600::5efe:7f00:1]", "[100::1]", "[3fff::1]", "[5f00::1]",
    # outside of what was ever given to anybody; the first are translated to IPv4 (SIIT)
    "[::ffff:0:127.0.0.1]", "[::ffff:0:a00:1]", "[64:ff9b::1:7f00:1]", "[400::7f00:1]", "[4000::1]", "[fe00::1]",
    # letters that are read as others
    "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u24db\u24de\u24d2alhost", "127%2e0.0.1", "%6cocalhost",
]  # fmt: skip


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_nothing_of_this_machine_or_its_networks_is_reached_however_it_is_written(web: Web) -> None:
    web.page("/", "what nobody is to see")
    tool = WebFetch(ports=None)
    led: list[tuple[str, str]] = []
    for host in HOSTS:
        result = await call(tool, f"http://{host}:{web.port}/")
        if not result.failed or "could not be fetched" in result.text or "Unexpected" in result.text:
            led.append((host, result.text))
    assert not led
    assert not web.asked


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.org/", "only http and https"),
        ("gopher://127.0.0.1:70/", "only http and https"),
        ("data:text/html,x", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("unix:/var/run/docker.sock", "only http and https"),
        ("//example.org/", "only http and https"),
        ("example.org", "only http and https"),
        ("http:///x", "no host"),
        ("http://", "no host"),
        ("http://a:b@example.org/", "user name or password"),
        ("http://@example.org/", "user name or password"),
        ("http://example.org@127.0.0.1/", "user name or password"),
        ("http://example.org\\@127.0.0.1/", "backslashes"),
        ("http://exa mple.org/", "contains spaces"),
        ("http://example.org/\r\nHost: x", "control characters"),
        ("http://example.org/\x00", "control characters"),
        ("http://example.org:22/", "port 22 is not one of those that are allowed: 80, 443"),
        ("https://example.org:0/", "port 0"),
        ("http://[::1", "is not a web address"),
        ("http://example.org:x/", "is not a web address"),
        ("http://" + "a" * 5000, "longer than 4000"),
        ("", "only http and https"),
    ],
)
async def test_addresses_that_are_none_of_the_web(url: str, said: str) -> None:
    assert said in await refused(WebFetch(), url)


async def test_a_port_that_no_computer_has() -> None:
    assert "1 to 65535" in await refused(WebFetch(ports=None), "http://example.org:99999/")


async def test_a_name_that_leads_here_is_refused_by_where_it_leads(web: Web) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return {"one.example": ["127.0.0.1"], "mixed.example": ["93.184.215.14", "10.0.0.1"], "odd.example": ["x"]}[
            host
        ]

    tool = WebFetch(ports=None, resolve=resolve)
    for host in ("one.example", "mixed.example", "odd.example"):
        assert "could not be fetched" not in await refused(tool, f"http://{host}:{web.port}/")
    assert not web.asked


async def test_a_name_that_changes_between_check_and_connection_changes_nothing(web: Web) -> None:
    """DNS rebinding: each address that is connected to was checked, as there is no second look-up."""
    web.page("/", "here")
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    tool = WebFetch(ports=None, allow_private=["127.0.0.0/8"], resolve=resolve)
    assert await text(tool, f"http://changes.example:{web.port}/") == "here"
    assert asked == ["changes.example"]
    assert web.headers[0]["host"] == f"changes.example:{web.port}"
    web.moved("/again", "/")
    asked[:] = []
    assert "10.0.0.1" in await refused(tool, f"http://changes.example:{web.port}/again")
    assert len(asked) == 2  # a redirect is a new connection, and looked up and judged anew


@pytest.mark.parametrize("name", ["hosts", "types", "allow_private"])
def test_one_text_is_no_list_of_them(name: str) -> None:
    """Read letter by letter, '*.example.org' would allow all hosts."""
    with pytest.raises(TypeError, match=rf"write {name}=\['\*\.example\.org'\]"):
        WebFetch(**{name: "*.example.org"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  the fault


@pytest.mark.parametrize(
    "url", ["http://bob:s3cret@example.org/", "https:\\\\bob:s3cret@x", "//bob:s3cret@x", "x://s3cret@x"]
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_errors_do_not_repeat_passwords(web: Web, url: str) -> None:
    assert "s3cret" not in await refused(WebFetch(), url)
    assert "s3cret" not in await refused(here(), web.moved("/", url))
    assert "s3cret" not in await refused(here(redirects=0), web.moved("/", url))


async def test_private_networks_are_allowed_by_name(web: Web) -> None:
    url = web.page("/", "here")
    assert await text(WebFetch(ports=[web.port], allow_private=["127.0.0.1/32"]), url) == "here"
    assert "not on the public internet" in await refused(WebFetch(ports=None, allow_private=["10.0.0.0/8"]), url)
    for host in ("169.254.169.254", "[fe80::1]", "0.0.0.0", "224.0.0.1"):  # True is no word for these
        assert "not on the public internet" in await refused(here(), f"http://{host}/")
    with pytest.raises(ValueError, match="nowhere"):
        WebFetch(allow_private=["nowhere"])


async def test_only_hosts_that_are_allowed(web: Web) -> None:
    url = web.page("/", "here")
    assert await text(here(hosts=["127.0.0.*"]), url) == "here"
    for hosts in (["*.example.org"], ["localhost"], []):
        assert "not one of those that are allowed" in await refused(here(hosts=hosts), url)
    assert "not one of" in await refused(WebFetch(hosts=["example.org"]), "https://example.org.evil.example/")


# -- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_pages_that_moved_are_followed(web: Web, status: int) -> None:
    web.page("/b/there", "<a href=x>here</a>")
    url = web.moved("/a", "b/there", status)
    assert await text(here(), url) == f"[moved to {web.url}/b/there]\n[here]({web.url}/b/x)"


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("http://169.254.169.254/latest/meta-data/", "not on the public internet"),
        ("http://10.0.0.1/", "not on the public internet"),
        ("//[::]/", "not on the public internet"),
        ("http://0x7f.1/", "not an IPv4 address in its usual form"),
        ("file:///etc/passwd", "only http and https"),
        ("http://a:b@127.0.0.1/", "user name"),
        ("/\\evil", "backslashes"),
        ("http://[::", "is not a web address"),
    ],
)
async def test_each_redirect_is_checked_anew(web: Web, to: str, said: str) -> None:
    tool = here(allow_private=["127.0.0.0/8"])
    assert said in await refused(tool, web.moved("/", to))
    assert web.asked == ["/"]


async def test_a_page_that_leads_on_and_on_is_given_up(web: Web) -> None:
    assert "redirects more than 3 times" in await refused(here(redirects=3), web.moved("/", "/"))
    assert len(web.asked) == 4
    assert "redirects more than 0 times" in await refused(here(redirects=0), web.moved("/", "/x"))


async def test_nothing_is_kept_from_one_page_to_the_next(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    web.page("/there", "here")
    url = web.page("/", "", status=302, Location="/there", Set_Cookie="a=b; Path=/")
    await text(here(), url + "#part")
    assert web.asked == ["/", "/there"]
    assert not any({"cookie", "authorization", "referer"} & headers.keys() for headers in web.headers)


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_what_is_behind_the_limit_is_left_out(web: Web) -> None:
    url = web.page("/", b"x" * 100_000, "text/plain")
    result = await call(here(limit=1000), url)
    assert result.text == "x" * 1000 + "\n[the page is longer than the 1000 bytes that were read]"
    assert result.metadata["cut"] is True


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_unpacks_to_much_is_unpacked_no_further_than_the_limit(web: Web) -> None:
    bomb = gzip.compress(b"a" * 10_000_000, 1)
    assert len(bomb) < 60_000
    url = web.page("/", bomb, "text/plain", Content_Encoding="gzip")
    await text(here(limit=10), url)  # what is loaded late is there now
    tracemalloc.start()
    try:
        assert (await call(here(limit=10_000), url)).metadata["bytes"] == 10_000
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    web.page("/", gzip.compress(b"small"), "text/plain", Content_Encoding="gzip")
    assert await text(here(), url) == "small"
    for packed in ("gzip, gzip", "br", "deflate", "x"):
        web.page("/", bomb, "text/plain", Content_Encoding=packed)
        assert "not requested" in await refused(here(), url)
    web.page("/", b"no gzip", "text/plain", Content_Encoding="gzip")
    assert "cannot be decompressed" in await refused(here(), url)


async def test_packed_pages_of_several_pieces_are_read_and_broken_ones_told(web: Web) -> None:
    pieces = gzip.compress(b"one ") + gzip.compress(b"two ") + b"\0" * 10 + gzip.compress(b"three") + b"\0"
    url = web.page("/", pieces, "text/plain", Content_Encoding="gzip")
    assert await text(here(), url) == "one two three"
    web.page("/", pieces[:-8], "text/plain", Content_Encoding="gzip")
    assert "incomplete page" in await refused(here(), url)
    web.page("/", gzip.compress(b"x" * 100_000)[:-9], "text/plain", Content_Encoding="gzip")
    assert "incomplete page" in await refused(here(), url)
    web.page("/", gzip.compress(b"") * 3000, "text/plain", Content_Encoding="gzip")
    assert "cannot be decompressed" in await refused(here(), url)
    web.page("/", gzip.compress(b"one") + b"no gzip", "text/plain", Content_Encoding="gzip")
    assert "cannot be decompressed" in await refused(here(), url)
    assert await text(here(), web.page("/", b"", "text/plain", Content_Encoding="gzip")) == "(empty)"


async def test_a_redirect_may_have_letters_that_are_not_ascii(web: Web) -> None:
    web.page("/gr%C3%BC%C3%9Fe", "here", "text/plain")
    url = web.moved("/", "/grüße".encode().decode("latin-1"))  # as most servers write it: UTF-8, as it is
    assert "here" in await text(here(), url)


async def test_certificates_that_cannot_be_read_are_told(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    _context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    assert "look at what SSL_CERT_FILE names" in await refused(here(), web.url)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert await text(here(), web.page("/", "here")) == "here"


async def test_a_page_without_an_end_is_read_up_to_the_limit(web: Web) -> None:
    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Connection", "close")
        request.end_headers()
        while True:
            request.wfile.write(b"x" * 10_000)

    web.pages["/"] = endless
    assert (await call(here(limit=100_000), web.url + "/")).metadata["cut"] is True


async def test_who_says_nothing_is_not_waited_for(web: Web) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.end_headers()
        for _ in range(10_000):  # until the client closes the connection
            request.wfile.write(b"x")
            request.wfile.flush()
            time.sleep(0.05)

    web.pages["/"] = drip
    with anyio.fail_after(60):
        assert "longer than 0.5 s" in (await call(here(seconds=0.5), web.url + "/")).text


async def test_nobody_there_and_nonsense_are_told(web: Web) -> None:
    def nonsense(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"what?\r\n\r\n")
        request.close_connection = True

    web.pages["/"] = nonsense
    assert "could not be fetched" in await refused(here(), web.url + "/")
    assert "could not be fetched" in await refused(here(), "http://127.0.0.1:1/")
    assert "could not be fetched" in await refused(here(), web.url.replace("http", "https"))
    assert "is not known" in await refused(here(), "http://nobody.invalid/")


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "application/pdf", "text", ""])
async def test_other_types_are_not_read(web: Web, kind: str) -> None:
    assert "which cannot be read" in await refused(here(), web.page("/", b"x", kind))


async def test_errors_of_servers_are_told_with_what_they_say(web: Web) -> None:
    assert "answered 404: nothing here" in await refused(here(), web.url + "/nowhere")
    assert "answered 500: no" in await refused(here(), web.page("/", '<p class="x">no</p>', status=500))
    assert (await refused(here(), web.page("/", b"\0", "image/png", status=403))).endswith("answered 403")


# -- what is made of it ----------------------------------------------------------------------------------------------


async def test_long_texts_are_given_in_parts(web: Web) -> None:
    url = web.page("/", "<title>T</title>" + "abcdefghij" * 10)
    assert (
        await text(here(shown=60), url)
        == "T\n\n" + "abcdefghij" * 6 + "\n[characters 0 to 60 of 100: continue with start=60]"
    )
    assert await text(here(shown=60), url, start=60) == "abcdefghij" * 4
    assert "no character 100" in await refused(here(), url, start=100)
    assert await text(here(), web.page("/", "")) == "(empty)"


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("text/plain; charset=iso-8859-1", b"\x80 gr\xfc\xdfe", "€ grüße"),
        ("text/plain; charset=UTF-8", "grüße".encode(), "grüße"),
        ("text/plain", "\ufeffgrüße".encode("utf-16-le"), "grüße"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ('text/html; charset="koi8-r"', "да".encode("koi8-r"), "да"),
        ("text/html", b'<meta charset="windows-1251">' + "да".encode("cp1251"), "да"),
        ("text/html", b'<meta http-equiv=x content="text/html; charset=gbk">' + "中".encode("gbk"), "中"),
        ("application/xml", b'<?xml version="1.0" encoding="iso-8859-15"?><a>\xa4</a>', "€"),
        ("text/plain; charset=zip", b"x", "x"),
        ("text/plain; charset=punycode", b"x", "x"),
        ("text/plain; charset=utf-7", b"+ADw-", "+ADw-"),
        ("text/plain", b"a\xffb", "a\ufffdb"),
        ("application/json", b'{"a": [1]}', '{"a": [1]}'),
        ("application/problem+json", b"{}", "{}"),
        ("Text/Plain", b"x", "x"),
        ("text/plain", b"a\x1b[2Jb\xe2\x80\xaec\r\n\td", "a[2Jbc\r\n\td"),
        ("text/plain", "a\U000e0049\U000e0067b".encode(), "ab"),
    ],
)
async def test_letters_are_read_as_they_were_meant(web: Web, kind: str, data: bytes, said: str) -> None:
    assert said in await text(here(), web.page("/", data, kind))


async def test_what_says_that_it_is_text_and_is_not(web: Web) -> None:
    assert "is not" in await refused(here(), web.page("/", b"\x89PNG\0\0", "text/plain"))


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<h1>A <b>b</b></h1><p>one\n two<p>three", "# A b\n\none two\n\nthree"),
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<table><tr><th>a<td>b</tr><tr><td>c</table>", "| a | b\n| c"),
        ("a<pre>\n  b\n   c</pre>", "a\n\n\n  b\n   c"),
        ("<script>if (a < b) x('</p>')</script><style>p{}</style>a<svg><text>b</text><svg></svg></svg>c", "ac"),
        ("<template>x</template><!-- x --><!doctype x><?x?><![CDATA[x]]>a", "a"),
        ("<a href='/x?a=1&amp;b=2'>a</a> <a href='#x'>b</a>", "[a](http://e/x?a=1&b=2) b"),
        ("<a href='javascript:x'>a</a><a>b</a>", "ab"),
        ("<a href=' x y'>a</a><a href='http://['>b</a>", "ab"),
        ('<p title="a > b">c</p>', "c"),
        ("<img src=x alt='a &lt; b'>", "a < b"),
        ("a < b &amp; c &lt;d&gt; &#x41; &nope; &#" + "9" * 5000 + ";", "a < b & c <d> A &nope; \ufffd"),
        ("a&#27;[2J\x1b\u202eb", "a[2Jb"),
        ("a<", "a<"), ("a<b", "a"), ("a</", "a"), ("a<!--", "a"), ("a<p title='", "a"), ("<script>a", ""),
        ("a<SCRIPT>b</Script >c", "ac"),
        ("<div hidden>" * 3 + "a", "a"),
    ],
)  # fmt: skip
def test_pages_are_made_readable(page: str, said: str) -> None:
    assert readable(page, "http://e/d/")[1] == said


BROKEN = [
    "<!--", "<", "<a ", '<a b="', "</", "<!", "<?", "<script>", "<script></scrip>", "&#", "<svg>", "</svg><video>",
    "<a href=x>", "<pre>", '<a href = href="', "<title>", "<a b='\">", '"<b c="<title>', "'<a href='<li>",
]  # fmt: skip


@given(st.text("<>\"'a =/b", max_size=60))
def test_looking_for_the_end_of_a_tag_once_finds_the_same(page: str) -> None:
    """Whether there is one is known without looking again, and is the same."""
    quotes = Quotes(page)
    for at in range(len(page) + 1):
        assert quotes.has_end(at) == (_REST.match(page, at) is not None)


def test_broken_pages_take_no_longer_than_others() -> None:
    """Four times as much takes about four times as long, and not sixteen times."""

    def seconds(page: str) -> float:
        start = time.process_time()
        readable(page, "http://e/")
        return time.process_time() - start

    slow = [unit for unit in BROKEN if seconds(unit * 3_000) > 0.1 + 10 * seconds(unit * 750)]
    assert not slow


def test_the_group(web: Web) -> None:
    (tool,) = tools_from_ref("web_fetch")
    assert (tool.name, tool.risk, tool.effect, tool.group, tool.timeout) == (
        "web_fetch",
        "write",
        "read",
        "web_fetch",
        30,
    )


async def test_with_hosts_it_reads_and_reaches_no_other(web: Web) -> None:
    """An address can carry out what was read: without hosts a call counts as one that sends something."""
    assert (WebFetch().risk, WebFetch(hosts=["a.org"]).risk) == ("write", "read")
    (tool,) = [one for one in tools_from_ref("web_fetch:docs.python.org,*.wikipedia.org") if isinstance(one, WebFetch)]
    assert tool.risk == "read"
    for url in ("https://evil.org/?q=secret", "https://docs.python.org.evil.org/", "https://wikipedia.org.evil/x"):
        assert "not one of those that are allowed" in await refused(tool, url)
    for hosts in ("*", "a.org,", "https://a.org", "a.org/x", "*.", "?.org"):
        with pytest.raises(GraphUnknown, match="names no host"):
            tools_from_ref(f"web_fetch:{hosts}")
