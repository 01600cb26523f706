"""Commands about memory across runs: memory list, get, put, delete, search, prune.

On the command line a namespace is written as a path, `users/42`. In a name, `%2F` stands for a slash, `%25` for a
percent sign.
"""

from __future__ import annotations

from datetime import timedelta
from json import dumps
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import unquote

import typer

from orchestrator.cli import exits, options, run_lookup, storage
from orchestrator.cli.options import seconds
from orchestrator.cli.output import out, out_json, out_table, redacted, shell_command, warn
from orchestrator.cli.run_input import json_of
from orchestrator.render.terminal.tables import Column

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.executor import Executor
    from orchestrator.memory import MemoryItem

T = TypeVar("T")

Namespace = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="The namespace, such as users/42.", show_default=False)
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The item's key.", show_default=False)]
Prefix = Annotated[
    str, typer.Argument(metavar="PREFIX", help="The first names of namespaces, such as users.", show_default=False)
]


def memory_list(
    prefix: Prefix = "",
    namespaces: Annotated[bool, typer.Option("--namespaces", help="List namespaces only.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of items.")] = 100,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List items of the memory that runs share.

    Example: orchestrator memory list users/42
    """

    names = _names(prefix)
    if namespaces:
        spaces = _reading(store, lambda executor: executor.memory.namespaces(names)) or ()
        if json:
            out_json([[*one] for one in spaces])
        for one in () if json else spaces:
            out(_path(one))
        return exits.COMPLETED
    items = _reading(store, lambda executor: executor.memory.list(names, limit=limit)) or ()
    _show(items, json=json)
    if len(items) == limit and not json:
        warn(f"the first {limit} items; see more with --limit, or name a prefix")
    return exits.COMPLETED


def memory_get(namespace: Namespace, key: Key, json: options.Json = False, store: options.Store = None) -> int:
    """Print a value of the memory as JSON.

    Exit code 4 if there is none.

    Example: orchestrator memory get users/42 diet
    """

    names = _names(namespace)
    item = _reading(store, lambda executor: executor.memory.get(names, key))
    if item is None:
        return _unknown(names, key)
    if json:
        out_json(_row(item))
    else:
        out(dumps(redacted(item.value), ensure_ascii=False))
    return exits.COMPLETED


def memory_put(
    namespace: Namespace,
    key: Key,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The value, a text.", show_default=False)] = None,
    value: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON|@FILE|-", help="The value as JSON: as text, from a file, or from stdin."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="AGE", help="Time after which the item expires (30d, 12h, 45m).")
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Store a value in the memory.

    A value of the same namespace and key is replaced. It is found by words, not by meaning.

    Example: orchestrator memory put users/42 diet "vegan, no nuts" --expires 30d
    """

    if (text is None) == (value is None):
        raise exits.UsageError("memory put: give either TEXT or --input")
    names, kept = _names(namespace), text if value is None else json_of(value)
    lifetime = None if expires is None else seconds(expires, "--expires")

    async def write(executor: Executor) -> MemoryItem | None:
        await executor.memory.put(names, key, kept, expires=lifetime)
        return await executor.memory.get(names, key) if json else None

    item = _writing(store, write)
    if item is not None:
        out_json(_row(item))
    return exits.COMPLETED


def memory_delete(namespace: Namespace, key: Key, json: options.Json = False, store: options.Store = None) -> int:
    """Delete an item of the memory.

    Exit code 4 if there is none.

    Example: orchestrator memory delete users/42 diet
    """

    names = _names(namespace)
    if not _writing(store, lambda executor: executor.memory.delete(names, key), False):
        return _unknown(names, key)
    if json:
        out_json({"deleted": [_path(names), key]})
    return exits.COMPLETED


def memory_search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words to search for.", show_default=False)],
    prefix: Annotated[str, typer.Option("--in", metavar="PREFIX", help="Only namespaces that begin with PREFIX.")] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of items.")] = 10,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Search the memory for words, the best item first.

    Example: orchestrator memory search "vegan food" --in users
    """
    names = _names(prefix)
    _show(_reading(store, lambda executor: executor.memory.search(names, text, limit=limit)) or (), json=json)
    return exits.COMPLETED


def memory_prune(
    prefix: Prefix = "",
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Also remove items that were not written for this time (such as 30d)."
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Remove items of the memory that have expired.

    Example: orchestrator memory prune users --older-than 90d
    """

    names = _names(prefix)
    age = None if older_than is None else timedelta(seconds=seconds(older_than, "--older-than"))

    async def remove(executor: Executor) -> int:
        removed = await executor.memory.prune(names, older_than=age)
        await executor.store.compact()
        return removed

    removed = _writing(store, remove, 0)
    if json:
        out_json({"removed": removed})
    else:
        warn(f"{removed} items removed")
    return exits.COMPLETED


# -- helpers -----------------------------------------------------------------------------------------------------------


def _reading(store: str | None, look: Callable[[Executor], Awaitable[T]]) -> T | None:
    """Return the result of `look`; None if there is no store. No store is created."""

    url = storage.store_url(store)
    return run_lookup.looking(url, look) if storage.exists(url) else None


def _writing(store: str | None, act: Callable[[Executor], Awaitable[T]], nothing: T | None = None) -> T:

    url = storage.store_url(store)
    return run_lookup.looking(url, act, writes=True) if nothing is None or storage.exists(url) else nothing


def _names(path: str) -> tuple[str, ...]:

    return tuple(unquote(name) for name in path.split("/")) if path else ()


def _path(names: Sequence[str]) -> str:
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


def _unknown(names: Sequence[str], key: str) -> int:

    path = _path(names)
    warn(f"error: there is no item {key!r} in {path}; `{shell_command('memory', 'list', path)}` lists the items there")
    return exits.UNKNOWN


def _row(item: MemoryItem) -> dict[str, object]:
    return {
        "namespace": [*item.namespace],
        "key": item.key,
        "value": redacted(item.value),
        "created": item.created,
        "updated": item.updated,
        "expires": item.expires,
        "score": item.score,
    }


def _show(items: Sequence[MemoryItem], *, json: bool) -> None:

    if json:
        out_json([_row(item) for item in items])
        return
    columns = (
        Column("score", right=True, optional=True),
        Column("namespace", least=12),
        Column("key", least=12),
        Column("value", least=24),
    )
    rows = [
        (
            "" if item.score is None else f"{item.score:.3f}",
            _path(item.namespace),
            item.key,
            dumps(redacted(item.value), ensure_ascii=False),
        )
        for item in items
    ]
    if rows:
        out_table(columns, rows)
