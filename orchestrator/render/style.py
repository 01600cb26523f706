"""The looks of SVG pictures: colours, type, icons.

Colours are Okabe and Ito's, which people with any colour vision tell apart, in shades that suit the ground; every
state also has a badge with a sign of its own and a line of its own (solid, dashed, dotted, marching, thick). Every
rule begins with `.agent-graph`, so that pictures can stand inside a page; a page, or the picture itself, chooses a
theme with `data-theme="light"` or `"dark"`, else the reader's system does.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from orchestrator.render.drawing import Look

_LIGHT = (
    "--page:#fff;--card:#fff;--group:#f6f7f9;--line:#cdd3dd;--ink:#182230;--soft:#5d6b82;--wire:#8d98aa;"
    "--pill:#344054;--pill-ink:#fff;--done:#00795a;--done-card:#eefaf5;--busy:#0067ab;--busy-card:#edf6fd;"
    "--wait:#8f5500;--wait-card:#fff7e6;--fail:#b23f00;--fail-card:#fff1ea;--flaw:#9b2c6f;--flaw-card:#fdf0f7;--mark-ink:#fff;--faint:.7;"
    "--code:#475467;--model:#6b3fc9;--tool:#0b7285;--human:#b0186f;--time:#a15c00;--event:#8a3ffc;--graph:#3a46c9;--custom:#667085;"
)
_DARK = (
    "--page:#0e131c;--card:#182030;--group:#131a27;--line:#37435a;--ink:#e8ecf4;--soft:#9aa7bd;--wire:#74829b;"
    "--pill:#d5dbe6;--pill-ink:#121826;--done:#2fc596;--done-card:#12302b;--busy:#62b5f2;--busy-card:#13293f;"
    "--wait:#f0b040;--wait-card:#33280f;--fail:#ff8552;--fail-card:#3a1d14;--flaw:#f291c4;--flaw-card:#33152a;--mark-ink:#0e131c;--faint:.65;"
    "--code:#aab6ca;--model:#b497ff;--tool:#4fc3d9;--human:#f48cc6;--time:#e5a04b;--event:#c29bff;--graph:#98a4ff;--custom:#98a2b3;"
)

ICONS: dict[Look, str] = {
    "code": "M5.4 4 1.8 8l3.6 4M10.6 4l3.6 4-3.6 4",
    "model": "M8 1.6 9.6 6.4 14.4 8 9.6 9.6 8 14.4 6.4 9.6 1.6 8 6.4 6.4Z",
    "tool": "M9.2 1.8 3.4 9.1H8L6.8 14.2 12.6 6.9H8Z",
    "human": "M8 7.4a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4ZM2.7 14c.5-2.8 2.5-4.3 5.3-4.3s4.8 1.5 5.3 4.3",
    "time": "M8 2.2a5.8 5.8 0 1 0 0 11.6 5.8 5.8 0 0 0 0-11.6ZM8 4.8V8l2.4 1.8",
    "event": "M2 3.8h12v8.4H2ZM2 4.4l6 4.6 6-4.6",
    "graph": "M5.8 1.8h4.4v3.6H5.8zM1.6 10.6H6v3.6H1.6zM10 10.6h4.4v3.6H10zM8 5.4V8M3.8 10.6V8h8.4v2.6",
    "custom": "M8 1.8 13.4 4.9v6.2L8 14.2 2.6 11.1V4.9ZM2.6 4.9 8 8l5.4-3.1M8 8v6.2",
}
"""Line drawings on a ground of 16 by 16."""

BADGES: dict[str, str] = {
    "ok": "M-3.7.3-1.2 2.9 3.8-2.7",
    "past": "M-3.6-3-.6 0-3.6 3M.2-3 3.2 0 .2 3",
    "busy": "M-2.1-3.5 3.7 0-2.1 3.5Z",
    "wait": "M-2.2-3.2v6.4M2.2-3.2v6.4",
    "flaw": "M0-3.6v4.4M0 3.5h.01",
    "fail": "M-2.8-2.8 2.8 2.8M2.8-2.8-2.8 2.8",
    "next": "M-3.6 0h.01M0 0h.01M3.6 0h.01",
    "gone": "M-2.7-2.7h5.4v5.4h-5.4Z",
    "over": "M-3.4 0h6.8",
}
"""Signs of the states, around the origin."""
_SIGNS = {
    "visited": ("ok", "done"),
    "passed": ("past", "done"),
    "faulty": ("flaw", "flaw"),
    "skipped": ("over", "soft"),
    "queued": ("next", "busy"),
    "interrupted": ("gone", "wait"),
    "running": ("busy", "busy"),
    "waiting": ("wait", "wait"),
    "failed": ("fail", "fail"),
}
"""State -> (sign, colour) of its badge; of several states the last one here shows."""


@cache
def stylesheet() -> str:
    """All rules, and the colours of both themes. It holds nothing but these constants, so it needs no escaping."""
    dark = '.agent-graph[data-theme="dark"],[data-theme="dark"] .agent-graph:not([data-theme])'
    light = '.agent-graph[data-theme="light"],[data-theme="light"] .agent-graph:not([data-theme])'
    return (
        f".agent-graph{{{_LIGHT}}}@media (prefers-color-scheme:dark){{.agent-graph{{{_DARK}}}}}"
        f"{light}{{{_LIGHT}}}{dark}{{{_DARK}}}@media print{{.agent-graph,{dark}{{{_LIGHT}}}}}{rules()}"
    )


@cache
def rules() -> str:
    """The rules, which name colours by their variables."""
    drawn = (files("orchestrator.render") / "style.css").read_text(encoding="utf-8").replace("\n", "")
    icons = "".join(
        f".agent-graph .look-{look} .chip{{fill:var(--{look})}}.agent-graph .look-{look} .icon{{stroke:var(--{look})}}"
        for look in ICONS
    )
    badges = "".join(
        f".agent-graph .{state}:not(.terminal)>.badge{{display:inline}}"
        f".agent-graph .{state}>.badge circle{{fill:var(--{colour})}}"
        f".agent-graph .{state}>.badge path.{sign}{{display:inline}}"
        f".agent-graph .{state}>.badge path:not(.{sign}){{display:none}}"
        for state, (sign, colour) in _SIGNS.items()
    )
    return f"{drawn}{badges}{icons}"


def palette(theme: Literal["light", "dark"]) -> dict[str, str]:
    """Variable -> colour, or number, of a theme."""
    told = _LIGHT if theme == "light" else _DARK
    pairs = (part.partition(":") for part in told.split(";") if part)
    return {name.removeprefix("--"): value for name, _, value in pairs}
