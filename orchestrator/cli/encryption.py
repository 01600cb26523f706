"""The codec of this user's stores, from the environment: no command has an option for it, so none can forget it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError

if TYPE_CHECKING:
    from orchestrator.stores.codec import Codec

KEYS = "ORCHESTRATOR_KEYS"
CODEC = "ORCHESTRATOR_CODEC"
CLEAR = "ORCHESTRATOR_CLEAR_VALUES"
_FORM = f"{KEYS}: write ID=env:VARIABLE, separated by commas; the first key writes, all of them read"


def codec_of(environment: Mapping[str, str]) -> Codec | None:
    """`ORCHESTRATOR_KEYS`, ids of keys with the variables that hold them, or `ORCHESTRATOR_CODEC`, a reference to a
    codec; None: neither is set. With the former, `ORCHESTRATOR_CLEAR_VALUES` is `accept` or `refuse`.

    Raises:
        UsageError: one of them is wrong, both are set, or a variable is not set.
    """
    keys, ref = environment.get(KEYS, "").strip(), environment.get(CODEC, "").strip()
    if keys and ref:
        raise UsageError(f"{KEYS} and {CODEC} are set: unset one of them")
    clear = environment.get(CLEAR, "").strip()
    if clear and not keys:
        raise UsageError(f"{CLEAR} is set, and {KEYS} is not: a codec of your own has an attribute `clear`")
    if keys:
        return _aes_gcm(keys, clear or "accept")
    return _named(ref) if ref else None


def _aes_gcm(text: str, clear: str) -> Codec:
    from orchestrator.errors import InvalidValue
    from orchestrator.stores.aes_gcm import AESGCMCodec
    from orchestrator.stores.codec import check_clear

    try:
        said = check_clear(clear)
    except InvalidValue:
        raise UsageError(f"{CLEAR}={clear}: use accept or refuse") from None
    keys: dict[str, str | bytes] = {}
    for part in text.split(","):
        name, equals, variable = part.strip().partition("=env:")
        if not equals or not name or not variable:
            raise UsageError(_FORM)  # never with the text: a key may stand in it
        keys[name] = f"env:{variable}"
    try:
        codec = AESGCMCodec(keys, clear=said)
        codec.check_keys()
        return codec
    except (InvalidValue, ImportError, LookupError) as error:
        raise UsageError(f"{KEYS}: {error.args[0]}") from None


def _named(ref: str) -> Codec:
    from orchestrator.cli.environment import import_for
    from orchestrator.cli.graphrefs import importing, module_from_name
    from orchestrator.graph.refs import attribute, module_named, module_of_file
    from orchestrator.stores.codec import Codec

    place, colon, name = ref.partition(":")
    if not colon:
        raise UsageError(f"{CODEC}={ref}: use module:attr or file.py:attr")
    import_for(ref, os.getcwd())
    with importing(place):
        module = module_of_file(place) if place.endswith(".py") else module_from_name(module_named(place))
        found: object = attribute(module, name)
        if isinstance(found, type) or (callable(found) and not isinstance(found, Codec)):
            found = found()
    if not isinstance(found, Codec):
        raise UsageError(f"{CODEC}={ref}: it is no codec, and no function that returns one")
    return found
