"""A directory that a stranger made, and a program that runs commands in it and tells what each of them touches.

    python -P stranger.py PLAN

Here it is a program: it begins with nothing but Python's own imports, so that every import of every command is seen.
An audit hook sees what is imported and run, opened, started and connected to. `PLAN` is JSON: the stranger's directory,
the commands, and the file that gets what each of them came to.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import Any

SEEN = ("exec", "compile", "open", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "ctypes.dlopen",
        "socket.connect", "socket.getaddrinfo", "socket.sendto")  # fmt: skip
CODE = (".py", ".pyc", ".so", ".txt", ".mcp.json")
"""How the files of the stranger's end that nothing may read."""


class Kept(io.BytesIO):
    """What was written, also after it was closed."""

    def close(self) -> None:
        self.flush()


class Watch:
    """What is touched of the stranger's, and every connection and program."""

    def __init__(self, place: str) -> None:
        self.place = os.path.realpath(place)
        self.found: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in SEEN:
            return
        if event in ("exec", "compile"):
            code = args[0] if event == "exec" else args[1]
            file = getattr(code, "co_filename", code)
            if isinstance(file, str) and self.is_theirs(file):
                self.found.append(f"{event} {file}")
        elif event == "open":
            if isinstance(args[0], str) and args[0].endswith(CODE) and self.is_theirs(args[0]):
                self.found.append(f"open {args[0]}")
        elif event == "subprocess.Popen":
            words = [str(word) for word in (args[0], *args[1])]
            brought = [name for name in args[3] or os.environ if name in BROUGHT]
            if any(self.is_theirs(word) for word in words if "/" in word) or brought:
                self.found.append(f"start {words} {brought}")
        elif event == "ctypes.dlopen":
            if isinstance(args[0], str) and "/" in args[0] and self.is_theirs(args[0]):
                self.found.append(f"load {args[0]}")
        elif event == "socket.connect":
            if not isinstance(args[1], str | bytes):  # a Unix socket's name
                self.found.append(f"connect {args[1]}")
        else:
            self.found.append(f"{event} {args[:2]}")

    def is_theirs(self, file: str) -> bool:
        if file.startswith("<"):
            return False
        return f"{os.path.realpath(file)}/".startswith(f"{self.place}/")


BROUGHT = ("LD_PRELOAD", "PYTHONSTARTUP", "GVBINDIR", "ORCHESTRATOR_MODEL", "HTTP_PROXY")
"""Variables of theirs that would change what a program does."""


def main() -> None:
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    watch = Watch(plan["place"])
    environment, path, finders = dict(os.environ), sys.path[:], sys.meta_path[:]
    told = []
    for words, more in plan["commands"]:
        os.environ.clear()
        os.environ.update({**environment, **more})
        sys.path[:], sys.meta_path[:], sys.argv[1:] = path, finders, words
        watch.found = []
        kept = [Kept(), Kept()]
        out, err = (io.TextIOWrapper(one, "utf-8", write_through=True) for one in kept)
        code: Any = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                from orchestrator.cli.app import run

                run(words)
            except SystemExit as end:
                code = end.code or 0
        texts = [one.getvalue().decode(errors="replace") for one in kept]
        told.append([code, *texts, watch.found, plan["place"] in sys.path])
    with open(plan["answer"], "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main()
