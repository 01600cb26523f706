"""ES modules as one script for a page that can load nothing: a small, strict transformation in place of a build tool.

Each module becomes a function that is called once, in the order of its imports, and returns its exports, so names of
one module stay its own. Modules may use these forms only, each on a line of its own, and no template strings:

    import { NAME, NAME } from "./module.js";
    export const NAME ...    export function NAME ...    export async function NAME ...    export class NAME ...
    export {};
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r'import \{ (\w+(?:, \w+)*) \} from "\./(\w+)\.js";')
_EXPORT = re.compile(r"export ((?:const|function|async function|class) (\w+)\b.*)")


class BundleError(ValueError):
    """Raised when a module has a form that the transformation does not support."""


@dataclass(frozen=True, slots=True)
class _Module:
    name: str
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    """Other modules, with the names that are taken from them."""
    exports: tuple[str, ...]
    lines: tuple[str, ...]
    """The rest, without comments that stand on lines of their own."""


@cache
def shipped_bundle(entry: str) -> str:
    """The script of one of the package's own modules and of all that it imports.

    Args:
        entry: name of the module, without `.js`.
    """
    folder = files("orchestrator.render.html") / "modules"
    return bundle(entry, lambda name: (folder / f"{name}.js").read_text(encoding="utf-8"))


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """A module and all that it imports as one classic script.

    Args:
        entry: name of the module, without `.js`.
        read: text of a module, by its name.

    Raises:
        BundleError: a module has a form that is not known, imports a name that is not exported, or imports itself.
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
    """The modules that are not found yet; each comes behind those that it imports."""
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
            lines.append(line)
    return _Module(name, tuple(imports), tuple(exports), tuple(lines))


def _code(text: str) -> Iterator[str]:
    """The lines that are not comments only."""
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
