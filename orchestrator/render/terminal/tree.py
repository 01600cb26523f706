"""The tree of a run on a terminal: ended steps scroll up, live ones are redrawn at the bottom.

A line has styled parts and is fitted to the columns of a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator import visible
from orchestrator.render.terminal import excerpts
from orchestrator.render.terminal.excerpts import update_text
from orchestrator.views.events import Event
from orchestrator.views.reader import Reader
from orchestrator.views.step_tree import LiveBranches, StepTree, TreeBranch, TreeStep
from orchestrator.views.step_work import JournaledCall

if TYPE_CHECKING:
    from orchestrator.kernel.plan import Plan
    from orchestrator.views.events import Event


Part: TypeAlias = tuple[str, str]
"""A text and its style (of rich)."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPINNING, _STILL = frozenset(SPINNER), "▸ "
_ASCII = str.maketrans({
    "▸": ">", "✓": "+", "✗": "x", "–": "-", "↻": "~", "○": "o", "│": "|", "…": "~", "→": ">", "·": "-",
    "“": '"', "”": '"',
    "⠋": "|", "⠙": "/", "⠹": "-", "⠸": "\\", "⠼": "|", "⠴": "/", "⠦": "-", "⠧": "\\", "⠇": "|", "⠏": "/",
})  # fmt: skip
"""Replacements for encodings without these characters."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the tree."""

    parts: tuple[Part, ...]
    going_on: bool = False
    """True if it shows something that has not ended, or encloses such a line."""
    more: str = "…"
    """Marks cut text."""
    tail: bool = False
    """True if a line that is too long is cut at its start."""

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(text for text, _ in self.parts)

    def inside(self) -> Line:
        """Return the line, indented by one level."""
        return replace(self, parts=(("│ ", "dim"), *self.parts))

    def still(self) -> Line:
        """Return the line with its spinner replaced by a still mark."""
        return replace(
            self, parts=tuple((_STILL, "") if text[:1] in _SPINNING else (text, style) for text, style in self.parts)
        )

    def said_in(self, encoding: str) -> Line:
        """Return the line for an encoding; other characters become escapes, which are wider.

        Terminal control sequences become escapes too: stores can contain forged names of nodes and outcomes.
        """
        safe = replace(self, parts=tuple((visible.line(text), style) for text, style in self.parts))
        if encoding.lower().startswith("utf"):
            return safe
        plain = ((text.translate(_ASCII), style) for text, style in safe.parts)
        parts = tuple((text.encode(encoding, "backslashreplace").decode(encoding), style) for text, style in plain)
        return replace(self, parts=parts, more="~")

    def fitted(self, width: int) -> Line:
        """Return the line cut to at most `width` columns of a terminal."""
        over = cell_len(self.text) - width
        if over <= 0:
            return self
        if self.tail:
            (*before, (text, style), last) = self.parts
            room = max(0, cell_len(text) - over - 1)
            while cell_len(text) > room:
                text = text[1:]
            return replace(self, parts=(*before, (f"{self.more}{text}", style), last), tail=False).fitted(width)
        kept: list[Part] = []
        room = max(1, width - 1)
        for text, style in self.parts:
            kept.append((text if cell_len(text) <= room else set_cell_size(text, room), style))
            room -= cell_len(kept[-1][0])
            if room <= 0:
                break
        return replace(self, parts=(*kept, (self.more, "dim")))


_SPINS = 10
"""Frames of the spinner per second."""
_MARKS = {
    "done": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "waiting": ("?", "bold yellow"),
    "dropped": ("–", "dim"),
    "retrying": ("↻", "yellow"),
    "unknown": ("!", "bold yellow"),
    "faulty": ("!", "bold magenta"),
    "passed": ("»", "green"),
    "queued": ("○", "dim"),
}
_DONE_STEPS, _DONE_BRANCHES, _CALLS = 2, 2, 3
"""Number of ended steps, branches and calls shown inside a live step."""
_BRANCHES = 40
"""Branches shown of an ended fork; of a larger one half as many, and the failed ones."""
_MOST = 200
"""Lines printed for an ended step, and steps of a branch within these lines."""


def left_behind(model: StepTree, step: TreeStep, standing: LiveBranches, now: float) -> list[Line]:
    """Return the lines to print permanently for an ended step of the top level."""
    lines = list(_step(model, step, standing, now, whole=True))
    if len(lines) > _MOST:
        lines[_MOST - 20 : -19] = [_note(f"… {len(lines) - _MOST} lines more; the run's events have all")]
    return lines


def going_on(
    model: StepTree, standing: LiveBranches, now: float, width: int, height: int, doing: str = "running"
) -> list[Line]:
    """Return the live part of a run and its spending: at most `height` lines."""
    end = summary(model, now, width, doing)
    lines = [line for step in model.top.steps for line in _step(model, step, standing, now, whole=False)]
    return [*_fitted(lines, max(1, height - len(end))), *end]


def _fitted(lines: list[Line], most: int) -> list[Line]:
    """Return at most `most` lines: first those of live steps, then the last of the others."""
    if len(lines) <= most:
        return lines
    now = [number for number, line in enumerate(lines) if line.going_on]
    then = [number for number, line in enumerate(lines) if not line.going_on]
    kept = sorted([*now, *reversed(then)][: most - 1])
    return [*(lines[number] for number in kept), _note(f"… {len(lines) - len(kept)} lines more")]


def where_it_stands(model: StepTree, standing: LiveBranches, now: float, width: int, height: int) -> list[Line]:
    """Return the lines of `going_on` for permanent output, without spinners."""
    return [line.still() for line in going_on(model, standing, now, width, height, doing="so far")]


def summary(model: StepTree, now: float, width: int, doing: str = "running") -> list[Line]:
    """Return status, spending and remaining limits: one line, or two on a narrow terminal."""
    machine, usage, inherited = model.run, model.run.own_usage, model.run.inherited
    status = machine.status
    seconds = usage.seconds + (max(0.0, now - machine.updated) if machine.running and status == "running" else 0.0)
    mark, style = (_spinner(now), "cyan") if status == "running" else _OF_STATUS.get(status, ("–", "yellow"))
    spent = [
        doing if status == "running" else status,
        excerpts.elapsed(seconds, over=status != "running") or "0 s",
        _many(usage.steps, "step"),
    ]
    spent += [_many(usage.calls, "call")] if usage.calls else []
    spent += [f"{'about ' if usage.estimated else ''}{usage.tokens:,} tokens"] if usage.tokens else []
    spent += [f"{usage.cached_tokens:,} of them cached"] if usage.cached_tokens else []
    spent += [f"cost {usage.cost:.4f}"] if usage.cost else []
    spent += [f"{usage.cache_savings:.4f} saved by the provider's cache"] if usage.cache_savings else []
    spent += [f"{_many(inherited.steps, 'step')} inherited"] if inherited.steps else []
    first = Line(((f"{mark} ", style), (" · ".join(spent), "bold")), going_on=True)
    left = _left(model, seconds + inherited.seconds) if machine.ended is None else ""
    if not left:
        return [first]
    if len(first.text) + len(left) + 5 <= width:
        return [Line((*first.parts, (f"   {left}", "dim")), going_on=True)]
    return [first, Line(((f"  {left}", "dim"),), going_on=True)]


_OF_STATUS = {"completed": ("✓", "green"), "failed": ("✗", "bold red"), "paused": ("?", "bold yellow")}


def _left(model: StepTree, seconds: float) -> str:
    root = model.run.root
    if root is None:
        return ""
    limits, found = root.limits, []
    for most, spent, said in (
        (limits.steps, root.steps, "{:,} steps"),
        (limits.seconds, seconds - root.began, "{:.0f} s"),
        (limits.calls, root.calls, "{:,} calls"),
        (limits.tokens, root.tokens, "{:,} tokens"),
        (limits.cost, root.cost, "cost {:.4f}"),
    ):
        if most is not None:
            found.append(said.format(max(0, most - spent)))
    return f"left: {' · '.join(found)}" if found else ""


# -- one step ----------------------------------------------------------------------------------------------------


def _step(
    model: StepTree, step: TreeStep, standing: LiveBranches, now: float, *, whole: bool, label: str = ""
) -> Iterator[Line]:
    """Yield a step with its calls and branches; unless `whole`, only as much as fits on a screen."""
    over = model.is_over(step, standing)
    yield _head(step, standing, now, over, label)
    for line in _calls(step, now, whole):
        yield line.inside()
    branches = list(step.branches.values())
    shown = _worth_showing(branches, standing, whole)
    for branch in shown:
        for line in _branch(model, branch, standing, now, whole=whole):
            yield line.inside()
    if len(shown) < len(branches):
        left = {branch.path for branch in branches} - {branch.path for branch in shown}
        waiting = len(left & standing.queued)
        more = [f"{_many(len(left) - waiting, 'branch', 'branches')} more"] if len(left) > waiting else []
        more += [f"{waiting:,} not begun"] if waiting else []
        yield _note(f"… {', '.join(more)}").inside()


def _worth_showing(branches: list[TreeBranch], standing: LiveBranches, whole: bool) -> list[TreeBranch]:
    """Return all branches of a small ended fork; else the live ones, the failed ones and some of the others."""
    if whole and len(branches) <= _BRANCHES:
        return branches
    begun = standing.live - standing.landed - standing.queued
    going = [one for one in branches if one.path in begun]
    queued = [one for one in branches if one.path in standing.queued]
    over = [one for one in branches if one.path not in standing.live or one.path in standing.landed]
    failed = [one for one in over if _failed(one)]
    few = _BRANCHES // 2 if whole else _DONE_BRANCHES
    kept = {id(one) for one in (*going, *queued[:few], *failed[:_BRANCHES], *over[-few:])}
    return [one for one in branches if id(one) in kept]


def _head(step: TreeStep, standing: LiveBranches, now: float, over: bool, label: str) -> Line:
    if step.over or step.state == "waiting":
        done = "faulty" if step.failed_calls else "passed" if step.unasked else "done"
        mark, style = _MARKS[done if step.state == "done" else step.state]
    elif step.state == "retrying" and step.next_at > now:
        mark, style = _MARKS["retrying"]
    else:
        mark, style = _spinner(now), "cyan"
    parts: list[Part] = [(f"{mark} ", style)]
    if label:
        parts.append((f"{label} · ", "dim"))
    parts.append((step.node, "bold" if not step.over else ""))
    if step.state == "done" and step.outcome != "done":
        parts.append((f" → {step.outcome}", style if not step.fault else "yellow"))
    if step.unasked:
        parts.append((f" {step.unasked}", "dim"))
    if step.by and step.over:
        parts.append((f" {excerpts.text(step.by, 40)}", "dim"))
    if step.cached:
        parts.append(("  from cache", "cyan"))
    if step.attempt > 1:
        parts.append((f"  attempt {step.attempt}", "yellow"))
    lasted = excerpts.elapsed((step.ended if step.over else now) - step.started, over=step.over) if step.key else ""
    if lasted and step.state != "dropped":
        parts.append((f"  {lasted}", "dim"))
    if forked := [branch for name, branch in step.branches.items() if "." in name]:
        landed = sum(branch.path not in standing.live or branch.path in standing.landed for branch in forked)
        parts.append((f"  {landed}/{len(forked)}", "" if over else "cyan"))
    said, how = _said(step, now)
    if said:
        parts.append((f"  {said}", how))
    return Line(tuple(parts), going_on=not over)


def _said(step: TreeStep, now: float) -> Part:
    match step.state:
        case "failed":
            return f"failed: {excerpts.text(step.fault)}", "red"
        case "waiting":
            return f"waits: {excerpts.text(step.asks)}", "yellow"
        case "retrying" if step.next_at > now:
            wait = excerpts.elapsed(step.next_at - now, over=True)
            return f"{excerpts.text(step.fault)}; tried again in {wait}", "yellow"
        case "dropped":
            return "not needed any more", "dim"
        case "done" if step.fault:
            return excerpts.text(step.fault), "yellow"
        case "done" if step.failed_calls:
            said = f"  {update_text(step.update)}" if step.update else ""
            return f"{_many(step.failed_calls, 'call')} failed{said}", "magenta"
        case "done":
            return (update_text(step.update) if step.update else ""), "dim"
    return ("" if step.note is None else excerpts.text(excerpts.note(step.note))), "dim"


def _failed(branch: TreeBranch) -> bool:
    return any(step.state == "failed" for step in branch.steps)


# -- calls and branches --------------------------------------------------------------------------------------------


def _calls(step: TreeStep, now: float, whole: bool) -> Iterator[Line]:
    calls = list(step.calls.values())
    shown = calls if whole else [*(one for one in calls if one.state == "running"), *calls[-_CALLS:]]
    shown = list({id(one): one for one in shown}.values())
    if len(shown) < len(calls):
        yield _note(f"… {_many(len(calls) - len(shown), 'call')} more")
    for one in shown:
        yield _call(one, step.call_notes.get(one.intended.key), now, step.over)
    if step.text:
        yield Line((("“", "dim"), (excerpts.tail(step.text, 240), ""), ("”", "dim")), going_on=True, tail=True)


def _call(one: JournaledCall, note: Event | None, now: float, over: bool) -> Line:
    state, settled = one.state, one.settled
    going = state in ("running", "retrying") and not over
    mark, style = _MARKS["dropped"] if over and state == "running" else _MARKS.get(state, (_spinner(now), "cyan"))
    parts: list[Part] = [(f"{mark} ", style), (excerpts.call(one), "" if going else "dim")]
    ended = 0.0 if settled is None else settled.ended or settled.ts
    lasted = excerpts.elapsed((now if going else ended) - one.begun, over=not going)
    about = "  ".join(part for part in (excerpts.tokens(one), lasted) if part)
    if about:
        parts.append((f"  {about}", "dim"))
    if state == "retrying" and settled is not None and (settled.next_at or 0.0) > now:
        wait = excerpts.elapsed((settled.next_at or 0.0) - now, over=True)
        parts.append((f"  {excerpts.text(one.fault)}; tried again in {wait}", "yellow"))
    elif state == "failed":
        parts.append((f"  {excerpts.text(one.fault)}", "red"))
    elif state == "unknown":
        parts.append(("  may or may not have happened", "yellow"))
    elif going and note is not None and (noted := excerpts.note(note)):
        parts.append((f"  {noted}", "dim"))
    elif state == "done" and (said := excerpts.result(one)):
        parts.append((f"  = {said}", "dim"))
    return Line(tuple(parts), going_on=going)


def _branch(model: StepTree, branch: TreeBranch, standing: LiveBranches, now: float, *, whole: bool) -> Iterator[Line]:
    """Yield a branch's label with its steps below; a branch of one step is one line, a subgraph has no label."""
    segment = branch.path.rpartition("/")[2]
    label = ""
    if "." in segment:
        label = " ".join((segment, *map(excerpts.name_of, branch.item))).rstrip()
    steps = branch.steps
    if not steps:
        queued = branch.path in standing.live
        mark, style = _MARKS["queued"] if queued and branch.path not in standing.landed else _MARKS["done"]
        yield Line(((f"{mark} ", style), (label or segment, "dim")))
        return
    if label and len(steps) == 1:
        yield from _step(model, steps[0], standing, now, whole=whole, label=label)
        return
    live = branch.path in standing.live
    going = live and branch.path not in standing.landed
    if label:
        mark, style = (_spinner(now), "cyan") if going else _MARKS["failed" if _failed(branch) else "done"]
        yield Line(((f"{mark} ", style), (label, "")), going_on=going)
    kept = _MOST if whole else _DONE_STEPS
    shown = [step for step in steps[:-kept] if not model.is_over(step, standing)] + steps[-kept:]
    if len(shown) < len(steps):
        line = _note(f"… {_many(len(steps) - len(shown), 'step')} before")
        yield line.inside() if label else line
    for step in shown:
        for line in _step(model, step, standing, now, whole=whole):
            yield line.inside() if label else line


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _note(text: str) -> Line:
    return Line(((text, "dim"),))


def _spinner(now: float) -> str:
    return SPINNER[int(now * _SPINS) % len(SPINNER)]


_PICTURES = 8
"""Redraws per second."""
_SETTLE = 0.1
"""Seconds between searches for ended steps, each of which visits every live token."""
_SHARE = 0.05
"""Largest share of the time for drawing: a run of thousands of branches is drawn less often."""


class Screen:
    """A run on a terminal. One thread passes events; another thread draws."""

    def __init__(self, plan: Plan, stream: TextIO) -> None:
        self._stream = stream
        self._console: Console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._encoding = getattr(stream, "encoding", "") or "ascii"
        self._model = StepTree()
        self._reader = Reader(plan, self._model)
        self._live: Live | None = None
        self._lock = threading.RLock()
        self._looked = 0.0
        self._cost = 0.0
        self._drawn: tuple[float, Text] | None = None
        self._held = True
        self._heard = 0.0
        """Unix seconds of the last event."""

    def knows(self, event: Event) -> bool:
        """Return True if it has the graph that a `migrated` event leads to."""
        return event.data.get("content") in self._reader.run.later

    def past(self, event: Event) -> None:
        """Process an earlier event; steps that had ended by then are not shown."""
        self._reader.take(event)

    def begin(self) -> None:
        """End the earlier events: print the number of ended steps that are left out."""
        over = self._over()
        if over:
            self._model.forget(over)
            self._print([Line(((f"… {over} step{'s' * (over > 1)} before this", "dim"),))])

    def show(self, event: Event) -> None:
        """Process a new event, in order."""
        self._held, self._heard = False, max(self._heard, event.ts)
        with self._lock:
            self._reader.take(event)
        if event.seq is not None and time.monotonic() - self._looked > max(_SETTLE, self._cost / _SHARE):
            self._settle()
        if self._live is None:
            self._start()

    def hold(self) -> None:
        """Stop drawing until the next event, and print the state of the run."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        if self._held:
            return
        self._held = True
        self._settle()
        model = self._model
        if model.run.root is not None:
            now = self._heard if model.run.status == "running" else time.time()
            self._print(where_it_stands(model, model.live_branches(), now, self._console.width, self._height))

    # -- drawing -------------------------------------------------------------------------------------------------

    @property
    def _height(self) -> int:
        return max(4, self._console.height - 1)

    def _start(self) -> None:
        live = Live(
            console=self._console,
            get_renderable=self._picture,
            refresh_per_second=_PICTURES,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
            vertical_overflow="crop",
        )
        live.start()
        self._console.show_cursor(True)  # so the state is printed even if this process is killed
        self._live = live

    def _picture(self) -> Text:
        began = time.monotonic()
        if self._drawn is not None and began < self._drawn[0]:
            return self._drawn[1]
        with self._lock:
            model = self._model
            lines = going_on(model, model.live_branches(), time.time(), self._console.width, self._height)
        whole = self._whole(lines)
        self._cost = time.monotonic() - began
        self._drawn = time.monotonic() + self._cost / _SHARE, whole
        return whole

    def _over(self) -> int:
        standing, over = self._model.live_branches(), 0
        for step in self._model.top.steps:
            if not self._model.is_over(step, standing):
                break
            over += 1
        return over

    def _settle(self) -> None:
        """Print the ended steps at the top permanently; without the lock, as the drawing thread takes both."""
        self._looked = time.monotonic()
        with self._lock:
            over = self._over()
            if not over:
                return
            model, now = self._model, time.time()
            standing = model.live_branches()
            lines = [line for step in model.top.steps[:over] for line in left_behind(model, step, standing, now)]
            model.forget(over)
            self._drawn = None  # otherwise the scrolled lines would also remain below
        self._print(lines)

    def _print(self, lines: list[Line]) -> None:
        if lines:
            self._console.print(self._whole(lines), no_wrap=True, crop=False, overflow="ignore")

    def _whole(self, lines: list[Line]) -> Text:
        return Text("\n", no_wrap=True, overflow="crop").join(self._text(line) for line in lines)

    def _text(self, line: Line) -> Text:
        made = Text()
        for text, style in line.said_in(self._encoding).fitted(max(10, self._console.width - 1)).parts:
            made.append(text, style)
        return made
