"""Runs as the store tells them. Nothing here needs code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from orchestrator.cli.exits import UsageError
from orchestrator.cli.interrupts import run_look
from orchestrator.cli.storage import codec_of_environment, exists, store_url
from orchestrator.cli.trust import journal_seal
from orchestrator.errors import RunUnknown

if TYPE_CHECKING:
    from orchestrator.executor import Executor, Run
    from orchestrator.stores import Store

T = TypeVar("T")


def looking(
    url: str, look: Callable[[Executor], Awaitable[T]], *, writes: bool = False, archive: str | None = None
) -> T:
    """What `look` finds with an executor that was given no code; `writes`: whether it journals anything.

    `archive`: the URL of the store's archive; None: what the environment says.

    Raises:
        KeyboardInterrupt: a signal stopped it.
    """

    async def work() -> T:
        from orchestrator.executor import Executor

        seal, codec = journal_seal(url, make=writes), codec_of_environment()
        async with Executor(store=url, seal=seal, codec=codec, archive=archive) as executor:
            return await look(executor)

    return run_look(work)


def reading(url: str, look: Callable[[Store], Awaitable[T]]) -> T:
    """What `look` finds in a store that is there, without an executor, which takes a while to load.

    Raises:
        KeyboardInterrupt: a signal stopped it.
    """

    async def work() -> T:
        from orchestrator.stores import open_store

        store = open_store(url, codec=codec_of_environment())
        try:
            return await look(store)
        finally:
            await store.close()

    return run_look(work)


def one_run(url: str, run_id: str, look: Callable[[Executor], Awaitable[T]], *, writes: bool = False) -> T:
    """The same about one run; a store that is not there is not made for it.

    Raises:
        RunUnknown: there is no such run.
    """
    if not exists(url):
        raise RunUnknown(run_id)
    return looking(url, look, writes=writes)


def load(url: str, run_id: str, at: int | None = None) -> Run:
    """A run, or what it was after its record `at`.

    Raises:
        RunUnknown: there is no such run.
        UsageError: it has no such record.
    """
    return one_run(url, run_id, partial(loaded, run_id=run_id, at=at))


async def loaded(executor: Executor, run_id: str, at: int | None = None) -> Run:
    """The same, of an open executor."""
    run = await executor.load(run_id, at=at)
    if at is not None and run.seq < at:
        raise UsageError(f"--at {at}: run {run_id!r} has {run.seq} records")
    return run


def find_run(what: str, store: str | None, at: int | None = None) -> Run | None:
    """The run of this id, if the store has one."""
    try:
        return load(store_url(store), what, at)
    except RunUnknown:
        return None
