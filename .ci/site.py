"""Hooks of the documentation site: pages of the API reference, and links that lead out of `docs`.

The reference has a page for each public package, with every name of its `__all__` once, on the first page that has it.
"""

from __future__ import annotations

import importlib
import re
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
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)]*)?\)")
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


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the reference to the navigation."""
    assert config.nav is not None
    config.nav.append({"Reference": [{module_of(p): f"reference/{module_of(p)}.md"} for p in PACKAGES]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    for path, text in reference().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep the text of links to other files of the repository, which the site does not have."""
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(config.docs_dir):
            return link[0]
        if not target.exists():
            log.warning("%s: there is no file %s", page.file.src_uri, link[2])
        return link[1]

    return LINK.sub(replaced, markdown)
