"""The looks of SVG pictures: colours, type, icons.

Colours are Okabe and Ito's, which people with any colour vision tell apart, in shades that suit the ground; every
state also has a badge with a sign of its own and a line of its own (solid, dashed, dotted, marching, thick). Every
rule begins with `.agent-graph`, so that pictures can stand inside a page; a page, or the picture itself, chooses a
theme with `data-theme="light"` or `"dark"`, else the reader's system does.
"""

from __future__ import annotations

from orchestrator.render.drawing import Look

_LIGHT = (
    "--page:#fff;--card:#fff;--group:#f6f7f9;--line:#cdd3dd;--ink:#182230;--soft:#5d6b82;--wire:#8d98aa;"
    "--pill:#344054;--pill-ink:#fff;--done:#00795a;--done-card:#eefaf5;--busy:#0067ab;--busy-card:#edf6fd;"
    "--wait:#b26a00;--wait-card:#fff7e6;--fail:#c04400;--fail-card:#fff1ea;--flaw:#9b2c6f;--flaw-card:#fdf0f7;--mark-ink:#fff;--faint:.7;"
    "--code:#475467;--model:#6b3fc9;--tool:#0b7285;--human:#b0186f;--graph:#3a46c9;--custom:#667085;"
)
_DARK = (
    "--page:#0e131c;--card:#182030;--group:#131a27;--line:#37435a;--ink:#e8ecf4;--soft:#9aa7bd;--wire:#74829b;"
    "--pill:#d5dbe6;--pill-ink:#121826;--done:#2fc596;--done-card:#12302b;--busy:#62b5f2;--busy-card:#13293f;"
    "--wait:#f0b040;--wait-card:#33280f;--fail:#ff8552;--fail-card:#3a1d14;--flaw:#f291c4;--flaw-card:#33152a;--mark-ink:#0e131c;--faint:.65;"
    "--code:#aab6ca;--model:#b497ff;--tool:#4fc3d9;--human:#f48cc6;--graph:#98a4ff;--custom:#98a2b3;"
)
_RULES = """
.agent-graph text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,\
"DejaVu Sans",sans-serif;fill:var(--ink);stroke:none}
.agent-graph .page{fill:var(--page)}
.agent-graph .title{font-size:13px;font-weight:600}
.agent-graph .status rect{fill:var(--soft);fill-opacity:.14}
.agent-graph .status text{font-size:10.5px;font-weight:600;fill:var(--soft);text-anchor:middle}
.agent-graph .name{font-size:13px;font-weight:600}
.agent-graph .detail{font-size:11px;font-weight:400;fill:var(--soft)}
.agent-graph .shape,.agent-graph .behind{fill:var(--card);stroke:var(--line);stroke-width:1.3;stroke-linejoin:round}
.agent-graph .cluster>.shape{fill:var(--group)}
.agent-graph .bar{fill:var(--soft)}
.agent-graph .chip{fill-opacity:.13;stroke:none}
.agent-graph .icon{fill:none;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}
.agent-graph .look-start .shape{fill:var(--pill);stroke:var(--pill)}
.agent-graph .look-start .name{fill:var(--pill-ink)}
.agent-graph .terminal .shape{stroke:var(--pill);stroke-width:1.5}
.agent-graph .terminal .inner{fill:none;stroke:var(--pill);stroke-width:1}
.agent-graph .terminal .name{font-size:10.5px;font-weight:600;letter-spacing:.05em;text-anchor:middle}
.agent-graph .look-any .shape{stroke:var(--wire);stroke-width:1.2;stroke-dasharray:4 3}
.agent-graph .look-any .name{fill:var(--soft);font-weight:400;letter-spacing:0}
.agent-graph .line{fill:none;stroke:var(--wire);stroke-width:1.4}
.agent-graph .core{fill:none;stroke:var(--page);stroke-width:1.6}
.agent-graph .in-cluster .core{stroke:var(--group)}
.agent-graph .head,.agent-graph .tail{fill:var(--wire)}
.agent-graph .mapped .line{stroke-width:4}
.agent-graph .reserved .line,.agent-graph .any .line{stroke-dasharray:5 4}
.agent-graph .label{font-size:11px;fill:var(--soft);text-anchor:middle;paint-order:stroke;stroke:var(--page);\
stroke-width:5px;stroke-linejoin:round}
.agent-graph .in-cluster .label{stroke:var(--group)}
.agent-graph .times{font-weight:600;fill:var(--done)}
.agent-graph .badge,.agent-graph .badge path,.agent-graph .count,.agent-graph .took{display:none}
.agent-graph .badge circle{stroke:var(--page);stroke-width:2}
.agent-graph .badge path{fill:none;stroke:var(--mark-ink);stroke-width:1.9;stroke-linecap:round;\
stroke-linejoin:round}
.agent-graph .count rect{fill:var(--card);stroke:var(--done);stroke-width:1.2}
.agent-graph .count text{font-size:10px;font-weight:600;text-anchor:middle;fill:var(--done)}
.agent-graph .took{font-size:10px;text-anchor:end;fill:var(--soft);paint-order:stroke;stroke:var(--page);\
stroke-width:4px;stroke-linejoin:round}
.agent-graph .many>.count,.agent-graph .timed>.took{display:inline}
.agent-graph .sheet{fill:var(--group);stroke:var(--line);stroke-width:1.3;stroke-dasharray:2 3}
.agent-graph .plan .label,.agent-graph .plan .took{stroke:var(--group)}
.agent-graph .plan:not(.shown){visibility:hidden}
.agent-graph.has-run .node:not(.visited):not(.current):not(.failed){opacity:var(--faint)}
.agent-graph.has-run .edge:not(.taken){opacity:var(--faint)}
.agent-graph .taken .line,.agent-graph .visited>.shape{stroke:var(--done)}
.agent-graph .taken .line{stroke-width:2.2}
.agent-graph .taken.w2 .line{stroke-width:2.8}.agent-graph .taken.w3 .line{stroke-width:3.5}
.agent-graph .taken.w4 .line{stroke-width:4.3}.agent-graph .taken.w5 .line{stroke-width:5.2}
.agent-graph .taken.mapped .line{stroke-width:4.8}
.agent-graph .taken .head,.agent-graph .taken .tail{fill:var(--done)}
.agent-graph .taken .label{fill:var(--ink)}
.agent-graph .visited>.shape,.agent-graph .visited>.behind{fill:var(--done-card);stroke:var(--done);\
stroke-width:1.6}
.agent-graph .terminal.visited .inner{stroke:var(--done)}
.agent-graph .look-start.visited>.shape{fill:var(--done)}
.agent-graph .look-start.visited>.name{fill:var(--mark-ink)}
.agent-graph .cluster.visited>.shape,.agent-graph .cluster.current>.shape,.agent-graph .cluster.failed>.shape\
{fill:var(--group)}
.agent-graph .faulty>.shape,.agent-graph .faulty>.behind{fill:var(--flaw-card);stroke:var(--flaw);\
stroke-width:1.8;stroke-dasharray:7 2}
.agent-graph .cluster.faulty>.shape{fill:var(--group)}
.agent-graph .queued>.shape{stroke:var(--busy);stroke-width:1.6;stroke-dasharray:1.5 4;stroke-linecap:round}
.agent-graph .skipped>.shape{stroke-dasharray:3 3}.agent-graph .skipped>.name{text-decoration:line-through}
.agent-graph .interrupted>.shape{fill:var(--card);stroke:var(--wait);stroke-width:2;stroke-dasharray:10 3 2 3}
.agent-graph .running>.shape{fill:var(--busy-card);stroke:var(--busy);stroke-width:2;stroke-dasharray:8 4}
.agent-graph .waiting>.shape{fill:var(--wait-card);stroke:var(--wait);stroke-width:2.2;stroke-dasharray:2.5 3.5}
.agent-graph .failed>.shape{fill:var(--fail-card);stroke:var(--fail);stroke-width:3;stroke-dasharray:none}
.agent-graph .badge .busy{fill:var(--mark-ink);stroke-width:1}.agent-graph .badge .next{stroke-width:2.6}
.agent-graph .status.completed rect{fill:var(--done)}.agent-graph .status.completed text{fill:var(--done)}
.agent-graph .status.running rect{fill:var(--busy)}.agent-graph .status.running text{fill:var(--busy)}
.agent-graph .status.paused rect,.agent-graph .status.interrupted rect,.agent-graph .status.exhausted rect\
{fill:var(--wait)}
.agent-graph .status.paused text,.agent-graph .status.interrupted text,.agent-graph .status.exhausted text\
{fill:var(--wait)}
.agent-graph .status.failed rect{fill:var(--fail)}.agent-graph .status.failed text{fill:var(--fail)}
@media (prefers-reduced-motion:no-preference){.agent-graph .running>.shape{animation:agent-graph-march .9s linear \
infinite}@keyframes agent-graph-march{to{stroke-dashoffset:-12}}}
"""

ICONS: dict[Look, str] = {
    "code": "M5.4 4 1.8 8l3.6 4M10.6 4l3.6 4-3.6 4",
    "model": "M8 1.6 9.6 6.4 14.4 8 9.6 9.6 8 14.4 6.4 9.6 1.6 8 6.4 6.4Z",
    "tool": "M9.2 1.8 3.4 9.1H8L6.8 14.2 12.6 6.9H8Z",
    "human": "M8 7.4a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4ZM2.7 14c.5-2.8 2.5-4.3 5.3-4.3s4.8 1.5 5.3 4.3",
    "graph": "M5.8 1.8h4.4v3.6H5.8zM1.6 10.6H6v3.6H1.6zM10 10.6h4.4v3.6H10zM8 5.4V8M3.8 10.6V8h8.4v2.6",
    "custom": "M8 1.8 13.4 4.9v6.2L8 14.2 2.6 11.1V4.9ZM2.6 4.9 8 8l5.4-3.1M8 8v6.2",
}
"""Line drawings on a ground of 16 by 16."""

BADGES: dict[str, str] = {
    "ok": "M-3.7.3-1.2 2.9 3.8-2.7",
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
    "faulty": ("flaw", "flaw"),
    "skipped": ("over", "soft"),
    "queued": ("next", "busy"),
    "interrupted": ("gone", "wait"),
    "running": ("busy", "busy"),
    "waiting": ("wait", "wait"),
    "failed": ("fail", "fail"),
}
"""State -> (sign, colour) of its badge; of several states the last one here shows."""


def stylesheet() -> str:
    """All rules. It holds nothing but these constants, so it needs no escaping."""
    dark = '.agent-graph[data-theme="dark"],[data-theme="dark"] .agent-graph:not([data-theme])'
    light = '.agent-graph[data-theme="light"],[data-theme="light"] .agent-graph:not([data-theme])'
    rules = _RULES.strip().replace("\n", "")
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
    return (
        f".agent-graph{{{_LIGHT}}}@media (prefers-color-scheme:dark){{.agent-graph{{{_DARK}}}}}"
        f"{light}{{{_LIGHT}}}{dark}{{{_DARK}}}@media print{{.agent-graph,{dark}{{{_LIGHT}}}}}{rules}{badges}{icons}"
    )
