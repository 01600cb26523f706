"""References to code as text: `module:attr`.

Writing one is always safe. `resolve` imports, so it is called only for text that a person named: a graph file
given to `Graph.load`, an argument of the command line. It is never called for what a store holds.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from orchestrator.errors import GraphUnknown


def ref_of(thing: object) -> str | None:
    """`module:qualname` of a function or class, None for one that has no such name (a lambda, a closure)."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    return f"{_importable(module)}:{name}"


def _importable(module: str) -> str:
    """The name under which another process imports a module that runs as the main program here."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file and Path(file).stem.isidentifier() else "__main__"


def find(ref: str) -> object | None:
    """What a reference names among the modules that are imported already, else None. Imports nothing."""
    module_name, _, path = ref.partition(":")
    main = sys.modules.get("__main__")
    module = main if main is not None and _importable("__main__") == module_name else sys.modules.get(module_name)
    thing: object = module
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing


def resolve(ref: str) -> object:
    """Import what a reference names.

    Raises:
        GraphUnknown: the text is no reference, or there is no such module or attribute.
    """
    module_name, colon, path = ref.partition(":")
    if not colon or not module_name or not path:
        raise GraphUnknown(f"{ref!r} is no reference: write 'module:attribute'")
    known = find(ref)
    if known is not None:
        return known
    try:
        thing: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise GraphUnknown(f"{ref!r}: there is no module {error.name!r}; is its folder on sys.path?") from None
        raise
    for part in path.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            raise GraphUnknown(f"{ref!r}: module {module_name!r} has no {path!r}") from None
    return thing
