"""Memory across runs: JSON values under a namespace and a key, which persist after their run.

    await ctx.memory.put(("users", "42"), "diet", {"text": "vegan, allergic to nuts"})
    item = await ctx.memory.get(("users", "42"), "diet")
    found = await ctx.memory.search(("users", "42"), "what may she eat?")

In a run, every access is an effect. `executor.memory` accesses the same items from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from orchestrator.errors import InvalidValue, MemoryFull
from orchestrator.graph.codec import as_json, explain, shown
from orchestrator.redaction import without_known, without_known_in
from orchestrator.values import MAX_LIFETIME, check_name, check_text

__all__ = ["Embed", "Memory", "MemoryItem", "MemoryOptions"]

T = TypeVar("T")

MAX_NAMES = 20
"""Maximum number of names in a namespace."""

MAX_FOUND = 1000
"""Maximum number of items that one call returns."""

FULL = "full"
"""Key in the result of a write for which there was no room; its value is the error's message."""

Embed: TypeAlias = Callable[[list[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]]
"""A function, sync or async, that turns texts into vectors of equal length, in the order of the texts."""

By: TypeAlias = Literal["words", "meaning"]


@dataclass(frozen=True)
class MemoryOptions:
    """Options of an executor's memory: `Executor(memory=MemoryOptions(...))`."""

    embed: Embed | None = None
    """Turns texts into vectors, for search by meaning. Values stored without it are found only by words."""
    expires: float | None = None
    """Seconds after which a value expires that is stored without `expires=`; None for never."""
    max_value: int = 1024 * 1024
    """Maximum number of UTF-8 bytes of a value's JSON."""
    max_bytes: int | None = None
    """Maximum number of bytes of all values in the store, including their names; a `put` beyond that raises
    `MemoryFull`. None for no limit.
    """

    max_cache: int | None = 256 * 1024 * 1024
    """Maximum number of bytes of all results of nodes with `cache=` in the store; the oldest are removed to make room.
    None for no limit.
    """

    cache: bool = True
    """Whether nodes with `cache=` use and keep results. Without it they do their work each time."""

    def __post_init__(self) -> None:
        check_lifetime(self.expires)
        for name, most in (("max_value", self.max_value), ("max_bytes", self.max_bytes), ("max_cache", self.max_cache)):
            if most is not None and most < 1:
                raise ValueError(f"MemoryOptions({name}={most}): give the number of bytes, 1 or more")


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A value in memory."""

    namespace: tuple[str, ...]
    key: str
    value: Any
    """Plain JSON."""
    created: float
    """Unix seconds, by the store's clock, as for the next two."""
    updated: float
    expires: float | None = None
    """Unix seconds; None for never."""
    score: float | None = None
    """Score in a search, the higher the better; None outside searches."""

    def value_as(self, kind: type[T]) -> T:
        """Return the value as a value of a type, such as a pydantic model.

        Args:
            kind: the type.

        Raises:
            InvalidValue: the value does not fit it.
        """
        try:
            return TypeAdapter(kind).validate_json(to_json(self.value), strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            raise InvalidValue(f"memory item {self.key!r} does not fit: {explain(error)}", where=self.key) from None


class Access(Struct, frozen=True):
    """An access to memory, as plain JSON."""

    name: Literal["get", "put", "delete", "search", "list", "namespaces"]
    request: dict[str, object] = {}

    @property
    def writes(self) -> bool:
        """True if the access changes the memory."""
        return self.name in ("put", "delete")


class Memory(ABC):
    """Values that persist across runs.

    A namespace is a tuple of 1 to 20 names, such as `("users", "42")`. Names and keys have 1 to 200 printable
    characters.
    """

    __slots__ = ()

    @abstractmethod
    async def _access(self, access: Access) -> Any:
        """Make an access, and return its result as plain JSON."""

    @property
    @abstractmethod
    def _options(self) -> MemoryOptions:
        """The executor's options."""

    async def get(self, namespace: Sequence[str], key: str) -> MemoryItem | None:
        """Return an item; None if there is none, or if it has expired.

        Args:
            namespace: the namespace.
            key: the key.
        """
        found = await self._access(Access("get", {"namespace": names_of(namespace), "key": _key(key)}))
        return None if found is None else _item(found)

    async def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: object,
        *,
        expires: float | None = None,
        text: str | None = None,
    ) -> None:
        """Store a value, replacing any value with the same namespace and key.

        Known secrets of this process are blanked in it.

        Args:
            namespace: the namespace.
            key: the key.
            value: plain JSON, or pydantic models.
            expires: seconds after which the item is deleted; None for the default of `MemoryOptions.expires`.
            text: the text that `search` searches, in addition to the key; None for all texts and numbers in the value.

        Raises:
            InvalidValue: a name, the value or `expires` cannot be stored; nothing was changed.
            SecretInState: the value contains a `SecretStr`.
            MemoryFull: there is no room for the value; nothing was changed.
        """
        check_lifetime(expires)
        kept = as_json(value, f"the value of memory item {shown(key)}", size=self._options.max_value)
        _check_plain(value, f"the value of memory item {shown(key)}")
        request: dict[str, object] = {"namespace": names_of(namespace), "key": _key(key), "value": kept}
        if expires is not None:
            request["expires"] = expires
        if text is not None:
            request["text"] = check_text(text, f"the text of memory item {shown(key)}")
            as_json(text, f"the text of memory item {shown(key)}", size=self._options.max_value)
        found = await self._access(Access("put", cast("dict[str, object]", without_known_in(request))))
        if isinstance(found, Mapping) and FULL in found:
            raise MemoryFull(str(found[FULL]))

    async def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete an item.

        Args:
            namespace: the namespace.
            key: the key.

        Returns:
            True if the item existed.
        """
        return bool(await self._access(Access("delete", {"namespace": names_of(namespace), "key": _key(key)})))

    async def search(
        self, prefix: Sequence[str], text: str, *, limit: int = 10, by: By | None = None
    ) -> Sequence[MemoryItem]:
        """Return the items that match a text, the best first. Equally good ones are ordered by namespace and key.

        By words, an item matches if it has one of the words of the text; case and diacritics are ignored, and no
        character has a special meaning. By meaning, vectors are compared, and every item with a vector matches.

        Args:
            prefix: the first names of the namespaces to search; `()` for all.
            text: the text to search for.
            limit: maximum number of items to return, at most 1,000.
            by: `words` or `meaning`; None: by meaning if the executor has an embedding function, else by words.

        Raises:
            InvalidValue: an argument cannot be used, or `by="meaning"` without an embedding function.
        """
        if by not in (None, "words", "meaning"):
            raise InvalidValue(f"by={shown(by)}: use 'words' or 'meaning'", where="by")
        if by == "meaning" and self._options.embed is None:
            raise InvalidValue(
                "by='meaning' needs an embedding function: Executor(memory=MemoryOptions(embed=...))",
                where="by",
            )
        request: dict[str, object] = {
            "prefix": names_of(prefix, least=0),
            "text": without_known(check_text(text, "the text to search for")),
            "limit": _limit(limit),
        }
        if by is not None:
            request["by"] = by
        return [_item(one) for one in await self._access(Access("search", request))]

    async def list(
        self, prefix: Sequence[str] = (), *, after: MemoryItem | None = None, limit: int = 100
    ) -> Sequence[MemoryItem]:
        """Return items ordered by namespace and key.

        Args:
            prefix: the first names of their namespaces; `()` for any.
            after: the item after which to start: the last one of the previous page.
            limit: maximum number of items to return, at most 1,000.

        Raises:
            InvalidValue: an argument cannot be used.
        """
        request: dict[str, object] = {"prefix": names_of(prefix, least=0), "limit": _limit(limit)}
        if after is not None:
            if not isinstance(cast(object, after), MemoryItem):
                raise InvalidValue(f"after={shown(after)}: give the last item of the page before", where="after")
            request["after"] = [[*after.namespace], after.key]
        return [_item(one) for one in await self._access(Access("list", request))]

    async def namespaces(self, prefix: Sequence[str] = ()) -> Sequence[tuple[str, ...]]:
        """Return the namespaces that have items, in order.

        Args:
            prefix: their first names; `()` for any.
        """
        found = await self._access(Access("namespaces", {"prefix": names_of(prefix, least=0)}))
        return [tuple(names) for names in found]


def names_of(namespace: Sequence[str], *, least: int = 1) -> list[str]:
    """Return the names of a namespace.

    Raises:
        InvalidValue: the value is not a namespace.
    """
    if isinstance(namespace, str) or not isinstance(namespace, Sequence):
        raise InvalidValue(f"namespace {shown(namespace)}: give a tuple of names, such as ('users', '42')")
    if not least <= len(namespace) <= MAX_NAMES:
        raise InvalidValue(f"a namespace has {least} to {MAX_NAMES} names, and this one has {len(namespace)}")
    return [_name(name, "a name of a namespace") for name in namespace]


def check_lifetime(expires: object) -> None:
    """Refuse a lifetime that is not a positive number of seconds.

    Raises:
        InvalidValue: the lifetime is not such a number.
    """
    number = isinstance(expires, int | float) and not isinstance(expires, bool)
    if expires is not None and not (number and 0 < cast(float, expires) <= MAX_LIFETIME):
        raise InvalidValue(
            f"expires={shown(expires)}: give a number of seconds above 0, at most {MAX_LIFETIME:,} (100 years), "
            "or None for never",
            where="expires",
        )


def _check_plain(value: object, where: str, place: str = "") -> None:
    """Refuse a part of a value that would not be read back equal: anything other than JSON and pydantic models.

    Raises:
        InvalidValue: there is such a part; the message names its place.
    """
    if value is None or isinstance(value, str | int | float | BaseModel):
        return
    if isinstance(value, list):
        for number, item in enumerate(cast("list[object]", value)):
            _check_plain(item, where, f"{place}[{number}]")
        return
    wrong = f"it is a {type(value).__name__}"
    if isinstance(value, dict):
        keys = [key for key in cast("dict[object, object]", value) if not isinstance(key, str)]
        if not keys:
            for name, item in cast("dict[str, object]", value).items():
                _check_plain(item, where, f"{place}[{shown(name)}]")
            return
        wrong = f"its key {shown(keys[0])} is a {type(keys[0]).__name__}"
    raise InvalidValue(
        f"{where}{f', at {place}' if place else ''}: {wrong}, which would not be read back equal; give strings, "
        "numbers, booleans, None, lists, dicts with str keys, or a pydantic model",
        where=where,
    )


def searched_text(value: object) -> str:
    """Return the texts and numbers in a value."""
    found: list[str] = []
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, int | float) and not isinstance(one, bool):
            found.append(repr(one))
        elif isinstance(one, Mapping):
            todo.extend(reversed([*one.values()]))
        elif isinstance(one, Sequence):
            todo.extend(reversed(one))
    return "\n".join(found)


def _key(key: object) -> str:
    return _name(key, "the key of a memory item")


def _name(text: object, what: str) -> str:
    name = check_name(text, what)
    if without_known(name) != name:  # after blanking, different names would be the same
        raise InvalidValue(f"{what} contains a secret: use a digest of it instead", where=what)
    return name


def _limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_FOUND:
        raise InvalidValue(f"limit={shown(limit)}: give a number from 1 to {MAX_FOUND}")
    return limit


def _item(found: Mapping[str, Any]) -> MemoryItem:
    return MemoryItem(**{**found, "namespace": tuple(found["namespace"])})
