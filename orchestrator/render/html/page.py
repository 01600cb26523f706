"""Makes the text of the page from data: the filled-in template, the policy, the pictures; and the page in a frame.

The frame is for notebooks: a sandbox in which only the page's own script runs. If frames are removed (in an untrusted
notebook, a preview on GitHub), so is the style that hides the static picture.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Literal, cast

from orchestrator.graph.model import GraphDefinition
from orchestrator.json import ORDERED, in_pieces
from orchestrator.render.backends import RenderError
from orchestrator.render.html.run_data import RunWriter, run_data
from orchestrator.render.overlaid import RunLike
from orchestrator.render.svg import image_element, stylesheet, to_svg
from orchestrator.render.text import to_text
from orchestrator.views.overlay import Overlay
from orchestrator.views.run import Run
from orchestrator.views.safe_text import plain

_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_LOOK = re.compile(r' style="[^"]*"')


def page(
    graph: GraphDefinition,
    run: RunLike | None = None,
    other: Run | None = None,
    *,
    frame: Literal["frozen", "live"] | None = None,
    notes: bool = True,
) -> str:
    """See `orchestrator.render.html.to_html`.

    `frame`: the page is for a frame in another page, which posts the run if it is `live`.
    """
    if run is None:
        return _filled(plain(graph.name, 80), _still(graph), [])
    for one in (run, other):
        if one is not None and not hasattr(one, "records"):
            raise RenderError("html shows a run's journal: give the run itself (executor.load(...)), not its overlay")
    runs = [cast("Run", one) for one in (run, other) if one is not None]
    panes, told, heading = [], [], "h1" if other is None else "h2"
    for prefix, one in zip("ab", runs, strict=False):
        data, marks = run_data(one, notes=notes)
        panes.append(_pane(prefix, data, heading, *_forms(one.definition, marks, prefix)))
        told.append(data)
    if len(told) == 2:
        panes.insert(0, _comparison(told[0], told[1]))
    title = " and ".join(f"{data['graph']} {data['run']}" for data in told)
    return _filled(title, "".join(panes), told, frame)


def _filled(
    title: str, body: str, runs: Sequence[Mapping[str, object]], frame: Literal["frozen", "live"] | None = None
) -> str:
    style, script = page_style(), shipped_bundle("frozen" if frame is None else "framed")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; "
        "img-src data:; "  # pictures of tools, which are embedded in the page
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_text("page.html")).substitute(
        policy=policy,
        style=style,
        title=escape(title),
        count={0: "none", 1: "one"}.get(len(runs), "two"),
        body=body,
        data=embedded(runs if frame is None else {"live": frame == "live", "runs": runs}),
        script=script,
    )


def live_pane(writer: RunWriter, data: Mapping[str, Any]) -> str:
    """Return the HTML of a run for a page that follows it. The style is `page_style`; the modules are in `modules/`.

    Args:
        writer: writes the run.
        data: its document.
    """
    return _pane("a", data, "h1", *_forms(writer.run.definition, writer.overlay(), "a"))


def live_picture(writer: RunWriter) -> str:
    """Return the picture for a page that follows a run, in all its forms."""
    return _forms(writer.run.definition, writer.overlay(), "a")[0]


def page_style() -> str:
    """Return the style of a page of a run and its pictures."""
    return f"{stylesheet()}{_text('page.css')}"


def embedded(value: object) -> str:
    """Return JSON that is safe inside a script element: it cannot end the element or become markup."""
    return "".join(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", piece) for piece in in_pieces(value, ORDERED))


def _still(graph: GraphDefinition) -> str:
    edges = "\n".join(plain(str(edge), 200) for edge in graph.edges)
    said = plain(graph.description or "", 500)
    return Template(_text("graph.html")).substitute(
        name=escape(plain(graph.name, 80)),
        said=escape(said),
        svg=_inside(to_svg(graph, prefix="a-")),
        edges=escape(edges),
    )


def _pane(prefix: str, data: Mapping[str, Any], heading: str, svg: str, fold: str) -> str:
    said = {name: escape(data[name]) for name in ("graph", "run", "status", "why")}
    if data.get("ended_diverged"):
        said["status"] = "diverged"
    return Template(_text("run.html")).substitute(
        said, p=prefix, head=data["head"], heading=heading, svg=svg, fold=fold
    )


def _inside(svg: str) -> str:
    """Return a picture for a page, without its own style. Its texts are escaped, so none can look like an attribute."""
    return _LOOK.sub("", _STYLE.sub("", svg, count=1))


def _forms(graph: GraphDefinition, marks: Overlay, prefix: str) -> tuple[str, str]:
    """Return the picture with open subgraphs and, if there are any, with closed ones and a button to switch."""
    opened = _inside(to_svg(graph, marks, prefix=f"{prefix}-"))
    if all(node.subgraph is None for node in graph.nodes.values()):
        return opened, ""
    closed = _inside(to_svg(graph, marks, prefix=f"{prefix}c-", closed=True))
    says = 'aria-pressed="false" title="Draw graphs inside as one node"'
    button = f'<button type="button" id="{prefix}-fold" {says}>Fold</button>'
    return opened + closed.replace("<svg ", "<svg hidden ", 1), button


def _comparison(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return a table of two runs, and the first step in which they differ."""
    names = (
        ("graph", "graph"),
        ("status", "status"),
        ("steps", "counted"),
        ("calls", "calls"),
        ("tokens in", "in"),
        ("tokens out", "out"),
        ("cost", "cost"),
        ("seconds alive", "seconds"),
        ("output", "output"),
    )
    rows = []
    for label, key in names:
        cells = [_cell(data, key) for data in (one, other)]
        same = "" if cells[0] != cells[1] else ' class="same"'
        rows.append(
            f'<tr{same}><th scope="row">{label}</th>' + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"
        )
    at = first_difference(one, other)
    said, link = "Both took the same steps with the same outcomes.", ""
    if at is not None:
        words = " and ".join(escape(_took(data, number)) for data, number in zip((one, other), at, strict=True))
        address = "&amp;".join(
            f"{name}step={number + 1}" for name, number in zip(("", "b."), at, strict=True) if number is not None
        )
        said, link = f"They first differ where {words}.", f' <a class="look" href="#{address}">Look at it</a>'
    return Template(_text("compare.html")).substitute(
        one=escape(one["run"]), other=escape(other["run"]), rows="".join(rows), said=said, link=link
    )


def _cell(data: Mapping[str, Any], key: str) -> str:
    if key == "seconds":
        return f"{data['seconds']:.2f}"
    value = data[key] if key in data else data["usage"].get(key, 0)
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return plain(text, 300)


def _took(data: Mapping[str, Any], at: int | None) -> str:
    if at is None:
        return f"{data['run']} did not reach this step"
    step = data["steps"][at]
    gave = f"gave {step['outcome']}" if "outcome" in step else f"is {step['status']}"
    return f"{data['run']} ran {step['node']} (step {at + 1}), which {gave}"


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int | None, int | None] | None:
    """Return the numbers of the first steps that differ: None for a run without the step; None if none differ.

    Steps are matched by branch, node and number among the steps of that node: the order of branches does not count.
    """
    names, others = _named(one), _named(other)
    for name, at in names.items():
        beside = others.get(name)
        if beside is None or any(
            one["steps"][at].get(part) != other["steps"][beside].get(part) for part in ("outcome", "status")
        ):
            return at, beside
    more = next((at for name, at in others.items() if name not in names), None)
    return None if more is None else (None, more)


def _named(data: Mapping[str, Any]) -> dict[tuple[str, str, int], int]:
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str, int], int] = {}
    for at, step in enumerate(data["steps"]):
        place = (step.get("path", ""), step["part"] or step["node"])
        found[*place, counts[place]] = at
        counts[place] += 1
    return found


@cache
def _text(name: str) -> str:
    return (files("orchestrator.render.html") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


HEIGHT = 720
"""Height in pixels."""
_HIDE = "<style>.orchestrator-page>img{display:none}</style>"
_FRAME_STYLE = "width:100%;border:1px solid #8d98aa66;border-radius:8px"


class FramedPage:
    """The result of `run.page()`: a page that shows itself as the last value of a notebook's cell.

    Args:
        run: the run.
        other: a second run, to compare it with.
        height: height of the frame, in pixels.
        name: name of the frame for `posted`; the page then shows posted runs. Default: it shows none.
    """

    def __init__(self, run: Run, other: Run | None = None, *, height: int = HEIGHT, name: str | None = None) -> None:
        if isinstance(height, bool) or not isinstance(height, int) or height < 1:
            raise ValueError(f"height must be a number of pixels, 1 or more, not {height!r}")
        self._run, self._other, self._height, self._name = run, other, height, name

    def to_html(self) -> str:
        """Return the frame, and the picture that replaces it, as HTML."""
        text = page(self._run.definition, self._run, self._other, frame="frozen" if self._name is None else "live")
        inside = text.replace("&", "&amp;").replace("'", "&#39;")
        picture = image_element(to_svg(self._run.definition, self._run))
        name = "" if self._name is None else f' id="{escape(self._name)}"'
        look = f'sandbox="allow-scripts" title="Page of the run" style="height:{self._height}px;{_FRAME_STYLE}"'
        return (
            f"{_HIDE}<div class=\"orchestrator-page\">{picture}<iframe{name} {look} srcdoc='{inside}'></iframe></div>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the page for notebooks, and the run as text."""
        return {"text/html": self.to_html(), "text/plain": to_text(self._run.definition, self._run)}


def framed(run: Run, other: Run | None = None, height: int | None = None) -> FramedPage:
    """Return the page of a run in a frame of a height in pixels; see `Run.page`."""
    return FramedPage(run, other, height=HEIGHT if height is None else height)


def posted(name: str, data: Mapping[str, Any]) -> str:
    """Return a script that posts a run to the frame `name`, immediately and after each reload of the frame.

    Args:
        name: id of the frame's element.
        data: the run, as `run_data` returns it.
    """
    return (
        f"<script>(() => {{const frame = document.getElementById({embedded(name)});"
        f'const send = () => frame.contentWindow?.postMessage({embedded(embedded(data))}, "*");'
        "if (frame) { frame.onload = send; send(); }})();</script>"
    )


_IMPORT = re.compile(r'import \{ (\w+(?:, \w+)*) \} from "\./(\w+)\.js";')
_EXPORT = re.compile(r"export ((?:const|function|async function|class) (\w+)\b.*)")


class BundleError(ValueError):
    """Raised when a module has an unsupported form."""


@dataclass(frozen=True, slots=True)
class _Module:
    name: str
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    """Other modules, with the names imported from them."""
    exports: tuple[str, ...]
    lines: tuple[str, ...]
    """The code, without comments on separate lines."""


@cache
def shipped_bundle(entry: str) -> str:
    """Return the script of one of the package's modules, with its imports.

    Args:
        entry: name of the module, without `.js`.
    """
    folder = files("orchestrator.render.html") / "modules"
    return bundle(entry, lambda name: (folder / f"{name}.js").read_text(encoding="utf-8"))


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """Return a module and all its imports as one classic script.

    Args:
        entry: name of the module, without `.js`.
        read: returns the text of a module, by its name.

    Raises:
        BundleError: a module has an unsupported form, imports a name that is not exported, or imports itself.
    """
    found: dict[str, _Module] = {}
    for module in _in_order(entry, read, found, ()):
        for other, names in module.imports:
            missing = [name for name in names if name not in found[other].exports]
            if missing:
                raise BundleError(f"{module.name}.js imports {missing[0]}, which {other}.js does not export")
    parts = "".join(_function(module) for module in found.values())
    script = f'(() => {{\n"use strict";\n{parts}}})();\n'
    if "</script" in script.lower() or "<!--" in script:
        raise BundleError("a module holds what would end the script element of a page")
    return script


def _in_order(
    name: str, read: Callable[[str], str], found: dict[str, _Module], around: tuple[str, ...]
) -> Iterator[_Module]:
    """Yield the modules that are not yet included, each after its imports."""
    if name in around:
        raise BundleError(f"modules import each other: {' -> '.join((*around, name))}")
    if name in found:
        return
    module = _parsed(name, read(name))
    for other, _ in module.imports:
        yield from _in_order(other, read, found, (*around, name))
    found[name] = module
    yield module


def _parsed(name: str, text: str) -> _Module:
    imports: list[tuple[str, tuple[str, ...]]] = []
    exports: list[str] = []
    lines: list[str] = []
    for line in _code(text):
        if taken := _IMPORT.fullmatch(line):
            imports.append((taken[2], tuple(taken[1].split(", "))))
        elif given := _EXPORT.fullmatch(line):
            exports.append(given[2])
            lines.append(given[1])
        elif "`" in line:
            raise BundleError(f"{name}.js has a template string, whose lines could look like comments")
        elif line == "export {};":
            continue
        elif line.lstrip().startswith(("import ", "export ", "import(", "import{", "export{")):
            raise BundleError(f"{name}.js has a form that is not known: {line}")
        else:
            lines.append(line.lstrip())  # no text goes over several lines, see above
    return _Module(name, tuple(imports), tuple(exports), tuple(lines))


def _code(text: str) -> Iterator[str]:
    """Yield the lines that are not comments only."""
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if inside:
            inside = not bare.endswith("*/")
        elif bare.startswith("/**") and "*/" not in bare:
            inside = True
        elif bare and not bare.startswith("//") and not (bare.startswith("/**") and bare.index("*/") == len(bare) - 2):
            yield line


def _function(module: _Module) -> str:
    taken = "".join(f"const {{ {', '.join(names)} }} = ${other};\n" for other, names in module.imports)
    body = "".join(f"{line}\n" for line in module.lines)
    return f"const ${module.name} = (() => {{\n{taken}{body}return {{ {', '.join(module.exports)} }};\n}})();\n"
