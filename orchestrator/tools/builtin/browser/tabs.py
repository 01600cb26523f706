"""A context of the browser: its tabs and the actions on them. It runs in the browser's process."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from playwright.async_api import Error
from playwright.async_api import TimeoutError as TimeoutFault

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.web_fetch.guard import Guard, shown_address
from orchestrator.tools.builtin.web_fetch.readable import CONTROL

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, ElementHandle, FloatRect, Frame, Page

_REF = re.compile(r"(?:f\d{1,6})?e\d{1,9}")
_SETTLE = 1.0
"""Seconds for a page to load and render after an action; later changes are seen by the next read."""
_CLOSING = 3.0
_PATIENCE = 3.0
"""Seconds that the frames of a page have to report their content."""
_MOST_NOTES = 20
_NOTE = 300
"""Characters of a note, which may contain the text of a page's dialog."""
_DEAD = "the page does not answer, so its tab was closed: open another page"
QUOTE = "| "
"""Prefix of each line of untrusted text."""
_ELEMENT = re.compile(r'([a-z]+(?: "(?:[^"\\]|\\.)*"| /(?:[^\[\]]*/)?)?)((?: \[[^\]"]*\])*)')
"""Role and name, which a page may choose, followed by the attributes. A name between slashes has no quotes."""
_NUMBER = re.compile(r" \[ref=((?:f\d+)?e\d+)\]")
_ODD = re.compile(r"[^\w. -]+")
_ACTIVE = re.compile(r" \[active\]")
_NOTHING = frozenset({"generic", "document", "iframe"})
"""Roles of the focused element if no element of the page, or a frame, has the focus."""
_LONGEST = 200
"""Bytes of the name of a file: systems allow 255, and a number may be added."""
_LINE = re.compile(r"[\r\n\u2028\u2029\x85]+")
Answer: TypeAlias = dict[str, Any]
"""Result of an action: `text`, and for a screenshot `image` (base64)."""


class Tabs:
    """The tabs of one context, one of which is active."""

    def __init__(
        self, context: BrowserContext, guard: Guard, *, downloads: Path | None, most: int, shown: int, seconds: float
    ) -> None:
        self._context, self._guard = context, guard
        self._downloads, self._most, self._shown, self._seconds = downloads, most, shown, seconds
        self._open: list[Page] = []
        self._front: Page | None = None
        self._notes: list[str] = []
        self._refusals: list[str] = []
        self._accepts = False
        """True if the dialogs of this action are accepted rather than dismissed."""
        self._began: asyncio.Future[Download] | None = None
        """The download that this action waits for."""
        self._seen: dict[Frame, str] = {}
        """Site of each frame when its page was last read."""
        self._saving: set[asyncio.Task[None]] = set()
        context.on("page", self._opened)
        context.on("dialog", self._asked)
        self._actions: dict[str, Callable[..., Awaitable[Answer]]] = {
            "goto": self.goto,
            "back": self.back,
            "read": self.read,
            "click": self.click,
            "fill": self.fill,
            "select": self.select,
            "key": self.key,
            "scroll": self.scroll,
            "screenshot": self.screenshot,
            "tab": self.tab,
            "download": self.download,
        }

    async def do(self, action: str, arguments: dict[str, Any]) -> Answer:
        """Carry out an action, within the time limit of actions.

        Raises:
            ToolError: the action failed, with the reason.
        """
        self._notes.clear()
        self._refusals.clear()
        self._accepts = False
        page = self._front
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._actions[action](**arguments)
        except TimeoutError:
            if page is not None and not await _answers(page):
                await self._drop(page)
                raise ToolError(_DEAD) from None
            raise ToolError(
                f"this took longer than {self._seconds:g} s; the page may still be working: read it again"
            ) from None
        except Error as error:
            raise ToolError(self._reason(error)) from None
        finally:
            self._accepts, self._began = False, None
        if "image" not in answer:
            answer["text"] = "\n".join([*self._quoted_notes(), answer["text"]])
        return answer

    # -- actions ---------------------------------------------------------------------------------------------------

    async def goto(self, url: str) -> Answer:
        """Open an address in the active tab."""
        _, mark, fragment = url.partition("#")
        address = str(self._guard.url(url)) + mark + fragment  # servers never see it, but scripts may read it
        if self._front is None:
            await self._context.new_page()
        page = self._page()
        response = await page.goto(address, wait_until="commit", timeout=1000 * self._seconds)
        if self._refusals and response is not None and response.status == 403:
            await page.goto("about:blank")
            raise ToolError(self._refusals[0])
        await self._settled(page)
        if response is not None and response.status >= 400:
            self._note(f"the server answered {response.status}")
        return await self.read()

    async def back(self) -> Answer:
        """Go back to the previous page."""
        page = self._page()
        if await page.go_back(wait_until="commit", timeout=1000 * self._seconds) is None:
            raise ToolError("there is no page before this one in this tab")
        await self._settled(page)
        return await self.read()

    async def read(self, start: int = 0) -> Answer:
        """Return the page as text."""
        page = self._page()
        before = {frame: _site(frame.url) for frame in page.frames}
        lines = quoted(await self._snapshot(page))
        text = "\n".join(lines)
        self._seen = {frame: site for frame, site in before.items() if _site(frame.url) == site}
        if start and start >= len(text):
            raise ToolError(f"there is no character {start}: the text of the page has {len(text)}")
        end = min(len(text), start + self._shown)
        rest = f"\n[characters {start} to {end} of {len(text)}: continue with start={end}]" if end < len(text) else ""
        head = await self._where(page)
        return {"text": f"{head}\n{part(text, start, end) or '| (empty)'}{rest}"}

    async def click(self, ref: str, element: str, accept: bool = False) -> Answer:
        """Click an element."""
        page, found = await self._element(ref, element)
        self._accepts = accept
        await found.click(timeout=1000 * self._seconds)
        await self._settled(page)
        return await self._after()

    async def fill(self, ref: str, element: str, text: str) -> Answer:
        """Replace the content of a field."""
        page, found = await self._element(ref, element)
        await found.fill(text, timeout=1000 * self._seconds)
        await self._settled(page)
        return await self._after()

    async def select(self, ref: str, element: str, options: list[str]) -> Answer:
        """Choose options in a list by their names."""
        page, found = await self._element(ref, element)
        given = await found.evaluate("list => [...(list.options ?? [])].map(option => option.label)")
        there = [str(label)[:200] for label in given] if isinstance(given, list) else []
        missing = [one for one in options if one not in there]
        if missing:
            raise ToolError(f"there is no option {missing[0]!r}; there are {', '.join(map(repr, there[:50]))}")
        await found.select_option(label=options, timeout=1000 * self._seconds)
        await self._settled(page)
        return await self._after()

    async def key(self, key: str, ref: str | None = None, element: str = "", accept: bool = False) -> Answer:
        """Press a key, in an element or in the focused one."""
        self._accepts = accept
        if ref is None:
            page = self._page()
            has_it = focused(await self._snapshot(page))
            if has_it is not None and not same(has_it, element):
                raise ToolError(f"the focus is in {has_it}: name it with `element`")
            await page.keyboard.press(key)
        else:
            page, found = await self._element(ref, element)
            await found.press(key, timeout=1000 * self._seconds)
        await self._settled(page)
        return await self._after()

    async def scroll(self, pages: float) -> Answer:
        """Scroll by a number of window heights."""
        page = self._page()
        size = page.viewport_size or {"height": 800}
        await page.mouse.wheel(0, pages * size["height"])
        await self._settled(page)
        return await self.read()

    async def screenshot(self, full: bool = False) -> Answer:
        """Take a picture of the active tab."""
        page = self._page()
        size = page.viewport_size or {"width": 1280, "height": 800}
        clip: FloatRect | None = None
        if full:
            said = await page.evaluate("document.documentElement.scrollHeight")
            height = said if isinstance(said, int) else size["height"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": max(1, min(height, 5 * size["height"]))}
        data = await page.screenshot(
            full_page=full, clip=clip, animations="disabled", caret="hide", timeout=1000 * self._seconds
        )
        text = "\n".join([*self._quoted_notes(), await self._where(page)])
        return {"text": text, "image": base64.b64encode(data).decode()}

    async def tab(self, number: int | None = None, close: bool = False) -> Answer:
        """List the tabs, activate one, or close it."""
        self._sweep()
        if number is not None:
            if not 1 <= number <= len(self._open):
                raise ToolError(f"there is no tab {number}: there are {len(self._open)}")
            page = self._open[number - 1]
            if close:
                await self._drop(page)
            else:
                self._front = page
                await page.bring_to_front()
        lines = []
        for place, page in enumerate(self._open, 1):
            mark = " (in front)" if page is self._front else ""
            lines.append(f"{place}. {shown_address(page.url)}{mark}")
        return {"text": "\n".join(lines) or "no tab is open"}

    async def download(self, ref: str, element: str) -> Answer:
        """Click something that downloads a file, and save the file."""
        if self._downloads is None:
            raise ToolError("this browser saves no files: it was made without downloads=")
        _, found = await self._element(ref, element)
        self._began = asyncio.get_running_loop().create_future()
        await found.click(timeout=1000 * self._seconds)
        download = await self._began  # from this tab, or one that the click opened
        try:
            fault = await download.failure()
            if fault:
                raise ToolError(f"the download failed: {fault}")
            source = await download.path()
            path, size = await asyncio.to_thread(_stored, source, self._downloads, download.suggested_filename)
        except BaseException:
            self._later(download.cancel())
            raise
        return {
            "text": f"saved as {path.name!r}, {size} bytes; the site calls it {download.suggested_filename[:200]!r}"
        }

    # -- pages -----------------------------------------------------------------------------------------------------

    def _page(self) -> Page:
        self._sweep()
        if self._front is None:
            raise ToolError("no page is open: open one with browser_goto (a run that is resumed has a new browser)")
        return self._front

    def _sweep(self) -> None:
        """Forget tabs that closed."""
        self._open = [page for page in self._open if not page.is_closed()]
        if self._front not in self._open:
            self._front = self._open[-1] if self._open else None

    def _opened(self, page: Page) -> None:
        """Register a tab that the toolbox or a page opened."""
        if len(self._open) >= self._most:
            self._note(f"a page wanted to open another tab; {self._most} are open, so it was closed")
            self._later(page.close())
            return
        if self._open:
            self._note(f"a page opened another tab, number {len(self._open) + 1}")
        self._open.append(page)
        self._front = self._front if self._front is not None and self._front in self._open[:-1] else page
        page.set_default_timeout(1000 * self._seconds)
        page.on("download", self._downloaded)
        page.on("crash", lambda _: self._crashed(page))

    def _crashed(self, page: Page) -> None:
        self._note("the page crashed, so its tab was closed")
        self._later(self._drop(page))

    async def _drop(self, page: Page) -> None:
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                await page.close()
        if page in self._open:
            self._open.remove(page)
        if self._front is page:
            self._front = self._open[-1] if self._open else None

    def _asked(self, dialog: Dialog) -> None:
        """Answer a dialog of a page, which would wait for ever."""
        accepted = self._accepts or dialog.type == "beforeunload"
        did = "accepted" if accepted else "dismissed"
        self._note(f"a dialog of the page ({dialog.type}) was {did}: {dialog.message[:_NOTE]!r}")
        self._later(dialog.accept() if accepted else dialog.dismiss())

    def _downloaded(self, download: Download) -> None:
        if self._began is None or self._began.done():
            self._note("a download started and was cancelled; use browser_download to save files")
            self._later(download.cancel())
            return
        self._began.set_result(download)  # one file for one call

    def _later(self, work: Awaitable[object]) -> None:
        async def quietly() -> None:
            with suppress(Exception):
                await work

        task = asyncio.ensure_future(quietly())
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    # -- answers ---------------------------------------------------------------------------------------------------

    async def _snapshot(self, page: Page) -> str:
        """Return a page as a tree of elements, without frames that do not answer in time."""
        with suppress(TimeoutFault):
            return await page.aria_snapshot(mode="ai", timeout=1000 * min(_PATIENCE, self._seconds / 4))
        return await page.aria_snapshot(mode="ai", timeout=500 * self._seconds)  # the page itself may be slow

    async def _element(self, ref: str, element: str) -> tuple[Page, ElementHandle]:
        """Return an element by its number. It must match the description that the caller gave and that was approved.

        Raises:
            ToolError: the element does not exist, or does not match.
        """
        page = self._page()
        if not _REF.fullmatch(ref):
            raise ToolError(f"{ref[:40]!r} is not the number of an element, such as e12: read the page")
        # The current snapshot: a page may have assigned the number to another element since it was read.
        is_now = elements(await self._snapshot(page)).get(ref)
        if is_now is None:
            raise ToolError(f"there is no element {ref} on the page now: read it again")
        if not same(is_now, element):
            raise ToolError(f"{ref} is {is_now}, not {element[:200]}: read the page again")
        found = await page.locator(f"aria-ref={ref}").element_handle(timeout=1000 * self._seconds)
        # The same number and name may be on a page of another site, to which this page has led in the meantime.
        for frame in (page.main_frame, await found.owner_frame()):
            if frame is None or self._seen.get(frame) != _site(frame.url):
                place = shown_address(page.url if frame is None else frame.url)
                raise ToolError(f"the page is from another site than when it was read, {place}: read it again")
        return page, found

    async def _settled(self, page: Page) -> None:
        """Wait a short time for a page to load and render."""
        with suppress(Exception):
            async with asyncio.timeout(_SETTLE):
                await asyncio.sleep(0.05)
                await page.wait_for_load_state("load")
                await page.wait_for_load_state("networkidle")

    async def _after(self) -> Answer:
        """Return the page after an action."""
        self._sweep()
        return {"text": "the tab closed"} if self._front is None else await self.read()

    async def _where(self, page: Page) -> str:
        title = ""
        with suppress(Exception):
            title = await page.title()
        place = f", tab {self._open.index(page) + 1} of {len(self._open)}" if len(self._open) > 1 else ""
        head = f"Page {shown_address(page.url)}{place}, with the title and content below, written by strangers:"
        return f"{head}\n{quoted(title)[0]}"

    def refused(self, reason: str) -> None:
        """Note that a request of a page was refused."""
        self._refusals[_MOST_NOTES - 1 :] = [reason]
        self._note(f"refused: {reason}")

    def _note(self, text: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text[: 2 * _NOTE])

    def _quoted_notes(self) -> list[str]:
        return [f"[{quoted(note)[0][2:]}]" for note in dict.fromkeys(self._notes)]

    def _reason(self, error: Exception) -> str:
        if self._refusals:
            return self._refusals[0]
        first = str(error).split("\n", 1)[0]
        return f"the browser reports {re.sub(r'^[A-Za-z]+[.][a-z_A-Z]+: ', '', first)[:_NOTE]!r}"


def _site(url: str) -> str:
    """Return scheme, host and port of an address; the whole address if it has none."""
    found = re.match(r"https?://[^/?#]*", url)
    return found[0] if found else url


async def _answers(page: Page) -> bool:
    """Return True if the page's scripts leave it responsive."""
    try:
        async with asyncio.timeout(_CLOSING):
            await page.evaluate("1")
    except Exception:
        return False
    return True


def _stored(source: Path, folder: Path, suggested: str) -> tuple[Path, int]:
    """Copy a file into a directory, under an unused name like the one that the server suggests."""
    name = file_name(suggested)
    stem, dot, end = name.partition(".")
    for number in range(1, 10_000):
        path = folder / (name if number == 1 else f"{stem}-{number}{dot}{end}")
        try:
            target = path.open("xb")  # another run may save a file with that name, and links are not followed
        except FileExistsError:
            continue
        try:
            with target, source.open("rb") as data:
                shutil.copyfileobj(data, target)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path, path.stat().st_size
    raise ToolError(f"there are too many files like {name!r}")


def quoted(text: str) -> list[str]:
    """Return the lines of a text, each marked as a quotation; at least one."""
    return [QUOTE + line.translate(CONTROL) for line in _LINE.split(text)] or [QUOTE]


def part(text: str, start: int, end: int) -> str:
    """Return characters of a quoted text, with the first line marked even if it starts within a line."""
    return (QUOTE if start and text[start - 1] != "\n" else "") + text[start:end]


def elements(snapshot: str) -> dict[str, str]:
    """Return the numbered elements of a snapshot, by number, with role and name: `e12` -> `button "Send"`."""
    found = {}
    for element, attributes in _listed(snapshot):
        number = _NUMBER.search(attributes)
        if number:
            found[number[1]] = element
    return found


def focused(snapshot: str) -> str | None:
    """Return role and name of the focused element; None if the page itself has the focus."""
    active = [element for element, attributes in _listed(snapshot) if _ACTIVE.search(attributes)]
    return active[-1] if active and active[-1] not in _NOTHING else None


def _listed(snapshot: str) -> Iterator[tuple[str, str]]:
    for line in snapshot.splitlines():
        text = line.translate(CONTROL).strip().removeprefix("- ")
        if text.startswith("'"):  # a key that YAML needs quoted
            text = text[1:].replace("''", "'")
        if match := _ELEMENT.match(text):
            yield match[1], match[2]


def file_name(suggested: str) -> str:
    """Return a name for a file like the one that a server suggests, without any path to another directory."""
    name = _ODD.sub("_", suggested.replace("\\", "/").rpartition("/")[2]).strip(". ").lstrip(".- ")
    stem, dot, end = name.rpartition(".")
    if not stem or len(end.encode()) > 20:
        stem, dot, end = name, "", ""
    room = _LONGEST - len((dot + end).encode())
    stem = stem.encode()[:room].decode(errors="ignore").strip(". ")
    return stem + dot + end if stem else "download"


def same(found: str, said: str) -> bool:
    """Return True if a description matches an element, apart from blanks and quotes."""
    return _plain(found) == _plain(said)


def _plain(text: str) -> str:
    return " ".join(text.replace("\\", "").replace("'", '"').strip().strip("-").split()).rstrip(":")
