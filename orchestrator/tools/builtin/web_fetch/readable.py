"""HTML as plain text: headings, paragraphs, lists and links, without styles and scripts.

This scanner exists because `html.parser` needs quadratic time on some broken pages: a minute for 60 kB of `<a `. Here
each step moves forward, and open elements end with the page.
"""

from __future__ import annotations

import html
import re
from array import array
from bisect import bisect_left
from urllib.parse import urljoin

_MARKS = re.compile("[\"'>]")
_OPEN = re.compile("<(?=[A-Za-z/!?])")
"""Start of markup; any other '<' is text."""
_NAME = re.compile(r"[A-Za-z][^\s/>]*")
_REST = re.compile(r"""[^"'>]*+(?:"[^"]*+"[^"'>]*+|'[^']*+'[^"'>]*+)*+>""")
_ATTRIBUTE = re.compile(r"""(?:^|[\s/"'])(href|alt)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_TITLE = 300
_LINKS = 2000
"""Maximum number of links of a page that are kept; others become plain text."""
_HUGE = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
CONTROL = dict.fromkeys(
    (
        *range(9),
        11,
        12,
        *range(14, 32),
        *range(127, 160),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xE0000, 0xE0080),
    )
)
"""Characters that control terminals, reverse text, or are invisible to people and read by models (tags)."""
_RAW = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
"""Elements without markup inside, which end only at their own end tag."""
_SKIPPED = frozenset({"svg", "template", "math", "canvas", "audio", "video"})
_APART = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "pre", "ul", "ol", "blockquote", "article", "section"}
)
"""Elements with an empty line around them."""
_BLOCKS = _APART | {
    "address", "aside", "body", "center", "dd", "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "header", "hr", "html", "legend", "li", "main", "menu", "nav", "option", "summary",
    "tbody", "tfoot", "thead", "tr",
}  # fmt: skip


class Quotes:
    """The three ways to read the quotes of a page, numbered by the initial state: outside, in `"`, in `'`."""

    def __init__(self, page: str) -> None:
        outside, double, single = 0, 1, 2
        self._at = array("L")
        self._ways = bytearray([outside])
        self._last = [-1, -1, -1]
        """For each way, the position of the last `>` outside its quotes."""
        for found in _MARKS.finditer(page):
            mark = found[0]
            if mark == ">":
                self._last[outside] = found.start()
                continue
            if mark == '"':
                outside, double = double, outside
            else:
                outside, single = single, outside
            self._at.append(found.start())
            self._ways.append(outside)

    def has_end(self, at: int) -> bool:
        """Return True if a `>` follows outside of quotes, for a reader that starts outside them at this position."""
        return self._last[self._ways[bisect_left(self._at, at)]] >= at


def readable(page: str, url: str) -> tuple[str, str]:
    """Return the title and the text of a page.

    Args:
        url: address of the page, for links.
    """
    scanner = _Scanner(page, url)
    scanner.scan()
    return _SPACE.sub(" ", scanner.title[:_TITLE]).strip(), scanner.out.text()


class _Out:
    """Text under construction, in which runs of blanks and of empty lines are merged."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._lines = 0
        self._space = False
        self._begun = False
        self.kept = 0
        """Number of open elements in which blanks are kept."""

    def words(self, text: str) -> None:
        if self.kept:
            if text:
                self.add(text)
            return
        part = _SPACE.sub(" ", text)
        if part.startswith(" "):
            self._space = True
        if part.strip(" "):
            self.add(part.strip(" "))
            self._space = part.endswith(" ")

    def add(self, text: str) -> None:
        if self._lines:
            self._parts.append("\n" * self._lines if self._begun else "")
        elif self._space and self._begun:
            self._parts.append(" ")
        self._lines, self._space, self._begun = 0, False, True
        self._parts.append(text)

    def line(self, count: int = 1) -> None:
        self._lines, self._space = max(self._lines, count), False

    def text(self) -> str:
        return "".join(self._parts).strip()


class _Scanner:
    def __init__(self, page: str, url: str) -> None:
        self._page, self._url = page, url
        self._skipped = ""
        self._depth = 0
        """The skipped element, and how deeply it is nested; other elements in it do not count."""
        self._links: list[str] = []
        self._left = _LINKS
        self._quotes: Quotes | None = None
        self.title = ""
        self.out = _Out()

    def scan(self) -> None:
        page, at = self._page, 0
        while at < len(page):
            found = _OPEN.search(page, at)
            end = found.start() if found else len(page)
            if end > at:
                self._words(page[at:end])
            at = self._markup(end) if found else end

    def _words(self, text: str) -> None:
        if not self._skipped:
            self.out.words(_plain(text))

    def _markup(self, at: int) -> int:
        """Read markup that starts with `<`; return the position of its end."""
        page = self._page
        if page.startswith("<!--", at):
            return _behind(page, "-->", at + 2)  # '<!-->' is a comment as well
        if page.startswith(("<!", "<?"), at):
            return _behind(page, ">", at)
        closing = page.startswith("/", at + 1)
        name = _NAME.match(page, at + 1 + closing)
        if name is None:  # '</' without a letter
            return _behind(page, ">", at)
        tag = name[0].lower()
        if closing:
            self._end(tag)
            return _behind(page, ">", name.end())
        end = self._rest(name.end())
        self._start(tag, page[name.end() : end])
        return self._raw(tag, end) if tag in _RAW else end

    def _rest(self, at: int) -> int:
        if self._quotes is None or self._quotes.has_end(at):
            found = _REST.match(self._page, at)
            if found:
                return found.end()
            self._quotes = Quotes(self._page)  # search for quotes once only, even if there are none
        return _behind(self._page, ">", at)  # a quote that is left open is not a quote

    def _raw(self, tag: str, at: int) -> int:
        end = re.compile(f"</{tag}(?=[\\s/>])", re.IGNORECASE).search(self._page, at)
        inside = self._page[at : end.start() if end else len(self._page)]
        if tag == "title" and not self.title and not self._skipped:
            self.title = _plain(inside)
        elif tag in ("textarea", "xmp"):
            self._words(inside)
        return _behind(self._page, ">", end.end()) if end else len(self._page)

    def _start(self, tag: str, rest: str) -> None:
        if tag in _SKIPPED and self._skipped in ("", tag) and not rest.endswith("/>"):
            self._skipped = tag
            self._depth += 1
        if self._skipped:
            return
        if tag in _BLOCKS:
            self.out.line(2 if tag in _APART else 1)
        if tag == "br":
            self.out.line()
        elif tag == "li":
            self.out.add("- ")
        elif tag in ("td", "th"):
            self.out.words(" | ")
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.out.add("#" * int(tag[1]) + " ")
        elif tag == "pre":
            self.out.kept += 1
        elif tag == "img":
            self.out.words(_attribute(rest, "alt"))
        elif tag == "a":
            self._links.append(self._link(_attribute(rest, "href")))
            if self._links[-1]:
                self.out.words("[")

    def _end(self, tag: str) -> None:
        if self._skipped:
            self._depth -= tag == self._skipped
            if not self._depth:
                self._skipped = ""
            return
        if tag == "a" and self._links:
            link = self._links.pop()
            if link:
                self.out.words(f"]({link})")
        elif tag == "pre":
            self.out.kept = max(self.out.kept - 1, 0)
        if tag in _BLOCKS:
            self.out.line(2 if tag in _APART else 1)

    def _link(self, href: str) -> str:
        """Return the target of a link, if it can be fetched and is not this page."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > 1000 or not self._left:
            return ""
        self._left -= 1
        try:
            found = urljoin(self._url, href)
        except ValueError:
            return ""
        ok = found.startswith(("http://", "https://")) and not re.search(r"[\s()<>\[\]]", found)
        return found if ok else ""


def _plain(text: str) -> str:
    """Return text with its references resolved. A very long number that is not a character would raise an error."""
    return html.unescape(_HUGE.sub("\ufffd", text)).translate(CONTROL)


def _attribute(rest: str, name: str) -> str:
    for found in _ATTRIBUTE.finditer(rest[:5000]):
        if found[1].lower() == name:
            return _plain(found[2] or found[3] or found[4] or "")
    return ""


def _behind(page: str, end: str, at: int) -> int:
    found = page.find(end, at)
    return len(page) if found < 0 else found + len(end)
