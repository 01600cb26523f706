"""Hooks of the documentation site: generated pages, links that lead out of `docs`, ranks in the search, lists.

The reference has a page for each public package, with every name of its `__all__` once, on the first page that has it.
Each notebook is a page with its stored outputs, and a gallery shows what each of them is about.
"""

from __future__ import annotations

import importlib
import json
import re
from base64 import b64decode
from html import unescape
from inspect import isclass, isroutine
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGES = ("", "errors", "graph", "nodes", "models", "models.middleware", "tools", "memory", "executor", "views",
            "stores", "render", "kernel", "testing", "notebook")  # fmt: skip
"""What the reference documents, in the order of its pages."""
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BOOSTS = {"notebooks/": 0.3, "reference/": 0.001, "decisions/": 0.000001}
"""Factors of the ranks of pages in the search, by folder: guides come first, and records of decisions last."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)]*)?\)")
SCREEN = re.compile(r'(<img [^>]*src="([^"]*/live_[a-z]+)_light.png"[^>]*>)')
log = get_plugin_logger("site")


def module_of(package: str) -> str:
    """The full name of a package of the library."""
    return f"orchestrator.{package}".rstrip(".")


def names_of(module: str) -> list[str]:
    """The public names of a module: those of `__all__`, or those that it defines itself."""
    found = importlib.import_module(module)
    defined = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
    return [name for name in getattr(found, "__all__", defined) if not name.startswith("_")]


def home_of(module: str, name: str) -> str:
    """Where a public name is defined, as a path that the reference can document."""
    value = getattr(importlib.import_module(module), name)
    named = isclass(value) or isroutine(value)
    return f"{value.__module__}.{value.__qualname__}" if named else f"{module}.{name}"


def reference() -> dict[str, str]:
    """The pages of the reference: Markdown by path."""
    pages: dict[str, str] = {}
    seen: set[str] = set()
    for module in map(module_of, PACKAGES):
        homes = {name: home_of(module, name) for name in names_of(module)}
        new = {name: home for name, home in homes.items() if home.startswith("orchestrator.") and home not in seen}
        seen |= set(new.values())
        summary = (importlib.import_module(module).__doc__ or "").split("\n\n")[0]
        blocks = [f"# `{module}`", summary, *(f"::: {home}" for home in new.values())]
        pages[f"reference/{module}.md"] = "\n\n".join(blocks) + "\n"
    return pages


def notebook(path: Path) -> tuple[str, list[bytes]]:
    """A notebook as Markdown with its stored outputs, and its pictures, which are `NAME_0.png`, `NAME_1.png`..."""
    parts: list[str] = []
    pictures: list[bytes] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = re.sub(r"\]\((\w+)\.ipynb", r"](\1.md", source)
            parts.append(re.sub(r"\]\(\.\./docs/", "](../", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![a picture of the graph or the run]({path.stem}_{len(pictures)}.png)")
                pictures.append(b64decode(data["image/png"]))
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
                parts.append(f"````text\n{text}\n````")
    return "\n\n".join(parts) + "\n", pictures


def gallery() -> dict[str, str | bytes]:
    """The pages of the notebooks with their pictures, and one that shows all of them: content by path."""
    about = (
        "They are in the folder `notebooks/` of the repository and need no key and no network. These pages show their "
        "stored outputs. `pip install . ipykernel` in a clone installs what they use."
    )
    shown = ["# Notebooks", about]
    files: dict[str, str | bytes] = {}
    for path in NOTEBOOKS:
        text, pictures = notebook(path)
        files[f"notebooks/{path.stem}.md"] = text
        files |= {f"notebooks/{path.stem}_{number}.png": picture for number, picture in enumerate(pictures)}
        title, about = text.split("\n\n")[:2]
        fullest = max(range(len(pictures)), key=lambda number: len(pictures[number]))
        shown += [
            f"## [{title.removeprefix('# ')}]({path.stem}.md)",
            about,
            f"[![a picture from the notebook]({path.stem}_{fullest}.png){{ width=320 }}]({path.stem}.md)",
        ]
    files["notebooks/index.md"] = "\n\n".join(shown) + "\n"
    return files


def misread(html: str) -> list[str]:
    """What should be a list and became text, or the other way round: an item ends where Markdown says, not by looks.

    A list needs an empty line before it, and four spaces of indentation for what belongs to an item. A line of a
    paragraph must not begin with a number and a dot.
    """
    text = re.sub(r"<pre.*?</pre>|<(?:h\d|t[hd])\b.*?</(?:h\d|t[hd])>", "", html, flags=re.DOTALL)
    single = re.findall(r"<ol[^>]*>\s*<li>(?:(?!<li>).)*?</ol>", text, flags=re.DOTALL)
    text = re.sub(r"</?(?:a|code|em|strong)\b[^>]*>", "|", text)  # a link begins no item
    lines = re.findall(r"^ *(?:[-*+]|\d+[.)]) .*", unescape(re.sub(r"<[^>]*>", "", text)), flags=re.MULTILINE)
    return lines + [re.sub(r"<[^>]*>|\s+", " ", found).strip() for found in single]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    assert config.nav is not None
    parts = {name: pages for part in config.nav if isinstance(part, dict) for name, pages in part.items()}
    parts["Reference"].append({"Python": [{module_of(p): f"reference/{module_of(p)}.md"} for p in PACKAGES]})
    names = ["index", *(path.stem for path in NOTEBOOKS)]
    parts["Tutorial"].append({"Notebooks": [f"notebooks/{name}.md" for name in names]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, content in (reference() | gallery()).items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to notebooks to their pages, and keep the text of links to other files, which the site lacks."""
    folder = Path(config.docs_dir, page.file.src_uri).parent
    boost = next((value for start, value in BOOSTS.items() if page.file.src_uri.startswith(start)), None)
    if boost is not None:
        page.meta["search"] = {"boost": boost}

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(config.docs_dir):
            return link[0]
        if target in (NOTEBOOKS[0].parent, *NOTEBOOKS):
            page_of = link[2].removeprefix("../").replace(".ipynb", ".md")
            return f"[{link[1]}]({page_of}{'index.md' * page_of.endswith('/')})"
        if not target.exists():
            log.warning("%s: there is no file %s", page.file.src_uri, link[2])
        return link[1]

    return LINK.sub(replaced, markdown) if page.file.src_uri[:10] != "notebooks/" else markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warn about lists that are none in HTML, and show screens of the live page as the reader's screen is."""
    for line in misread(html):
        log.warning("%s: a list that became text, or text that became a list: %s", page.file.src_uri, line)
    return SCREEN.sub(
        r'<picture><source media="(max-width: 600px) and (prefers-color-scheme: dark)" srcset="\2_390_dark.png" />'
        r'<source media="(max-width: 600px)" srcset="\2_390_light.png" />'
        r'<source media="(prefers-color-scheme: dark)" srcset="\2_dark.png" />\1</picture>',
        html,
    )
