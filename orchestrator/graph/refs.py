"""References to code as text: `module:attr`, or `file.py` for a module that is named by its file.

Writing one is always safe. `resolve` and `module_of_file` import, so they are called only for text that a person
named: a graph file given to `Graph.load`, an argument of the command line. They are never called for what a store
holds.

References name the strategies of this library `graphs.react:...`, after the folder of their source. The modules are
those of `orchestrator.strategies`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from orchestrator.errors import GraphUnknown
from orchestrator.jsontypes import digest

_STRATEGIES = "orchestrator.strategies."
_AS_WRITTEN = "graphs."
_FOLDER = Path(__file__).parents[1] / "strategies"


def strategies() -> tuple[str, ...]:
    """The names of the strategies that come with the library. Imports none of them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.name[0] != "_"))


def ref_of(thing: object) -> str | None:
    """`module:qualname` of a function or class, None for one that has no such name (a lambda, a closure)."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    module = _importable(module)
    return f"{_AS_WRITTEN}{module[len(_STRATEGIES) :]}:{name}" if module.startswith(_STRATEGIES) else f"{module}:{name}"


def module_named(module: str) -> str:
    """The name of the module that a reference means: `orchestrator.strategies.react` for `graphs.react`.

    A program that has imported a module `graphs.react` of its own means that one.
    """
    top, _, rest = module.partition(".")
    if top != "graphs" or not (_FOLDER / f"{rest}.py").is_file():
        return module
    strategy = f"{_STRATEGIES}{rest}"
    return strategy if sys.modules.get(module) in (None, sys.modules.get(strategy)) else module


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
    """What a reference names among the modules that are imported already, else None. Imports and runs nothing."""
    name, _, path = ref.partition(":")
    module_name = module_named(name)
    main = sys.modules.get("__main__")
    module = main if main is not None and _importable("__main__") == module_name else sys.modules.get(module_name)
    return _held(module, path)


def _held(thing: object, path: str) -> object | None:
    """What `path` leads to, through modules and classes alone, else None.

    It runs none of their code: a module with a `__getattr__` may import others, and a property may do anything.
    """
    for part in path.split("."):
        if isinstance(thing, ModuleType):
            thing = vars(thing).get(part)
        elif isinstance(thing, type):
            thing = next((vars(base)[part] for base in type.mro(thing) if part in vars(base)), None)
            thing = thing.__func__ if isinstance(thing, staticmethod) else thing
        else:
            return None
    return thing


def attribute(thing: object, path: str) -> object | None:
    """What `path` (`name.name...`) leads to from a module or another thing, else None."""
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
        raise GraphUnknown(f"{ref!r} is not a reference: write 'module:attribute'")
    known = find(ref)
    if known is not None:
        return known
    try:
        thing: object = importlib.import_module(module_named(module_name))
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


def module_of_file(file: str) -> ModuleType:
    """Import the module that a file holds, once, with its folder on `sys.path`: last, so that it hides no package.

    It keeps its own name where that is free, because references to its functions are written with it.

    Raises:
        GraphUnknown: there is no such file.
    """
    path = Path(file)
    if not path.is_file():
        raise GraphUnknown(f"there is no file {file!r}")
    path = path.resolve()
    if path.parent == _FOLDER.resolve():
        return importlib.import_module(f"{_STRATEGIES}{path.stem}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == str(path):
            return known
    name = path.stem
    taken = "." in name or name in sys.modules
    found = None if taken else importlib.util.find_spec(name)
    if found is not None and found.origin == str(path):
        return importlib.import_module(name)
    if taken or found is not None:
        name = f"{name.replace('.', '_')}_{digest(str(path))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GraphUnknown(f"{file!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
