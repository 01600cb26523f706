"""A command of the command line, run in this process, with real files as its streams."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import IO
from unittest import mock

from typer.main import get_command

import orchestrator
from orchestrator.cli import app as command_line

commands_of = functools.cache(get_command)
"""The commands of an application, put together once: that is half of what a short command costs."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_inside(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str) -> tuple[int, str, str]:
    """Run `python -m orchestrator WORDS`, as far as a process of its own makes no difference to it.

    Returns:
        The exit code, and what the command wrote to stdout and stderr.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin.encode())
        files[0].seek(0)
        streams = [TextIOWrapper(file, "utf-8", write_through=number == 2) for number, file in enumerate(files)]
        with _surroundings(cwd, env), _streams(streams):
            sys.argv = [str(Path(orchestrator.__file__).with_name("__main__.py")), *words]
            try:
                with mock.patch.object(command_line, "get_command", commands_of):
                    command_line.run()
            except SystemExit as end:
                code = end.code
            for stream in streams[1:]:
                stream.flush()
            out, err = (_read(file) for file in files[1:])
    assert code is None or isinstance(code, int), code
    return code or 0, out, err


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@contextmanager
def _streams(streams: Sequence[TextIOWrapper]) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextmanager
def _surroundings(cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Set directory and environment of a command; at the end restore these, imports, arguments and signal handlers."""
    place, environ, argv = Path.cwd(), dict(os.environ), sys.argv
    path, finders, modules = [*sys.path], [*sys.meta_path], {*sys.modules}
    handlers = [signal.getsignal(number) for number in SIGNALS]
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, handlers, strict=True):
            signal.signal(number, handler)
        sys.argv, sys.path[:], sys.meta_path[:] = argv, path, finders
        for name in {*sys.modules} - modules:
            if _is_below(sys.modules[name], cwd):
                del sys.modules[name]
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(place)


def _is_below(module: ModuleType, directory: Path) -> bool:
    """Return True if a module is a file of a directory, or a package in it."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(directory.resolve() in Path(place).resolve().parents for place in places if place)
