"""Models named by text: `offline`, `openai:NAME`, `module:attr` or `file.py:attr`.

`openai:NAME` uses chat completions, `responses:NAME` the Responses API, `anthropic:NAME` and `gemini:NAME` the
interfaces of these vendors. `openai:NAME?stop=false&output=prompt` sets flags of the profile, besides `streams=false`
and `protocol=FORM`, which wraps the model in `TextProtocol`. `ends=WORD,WORD` are words of the server for the end of a
complete reply; a JSON object, `ends={"WORD": "length"}`, says what each means.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import parse_qsl

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import GraphUnknown
from orchestrator.graph.codec import explain
from orchestrator.graph.refs import attribute, module_of_file, resolve
from orchestrator.models.base import Model
from orchestrator.models.prices import Price
from orchestrator.private import keep_private
from orchestrator.redaction import redact
from orchestrator.spelling import did_you_mean

if TYPE_CHECKING:
    from orchestrator.models.server import ServerModel

VENDORS = ("openai", "responses", "anthropic", "gemini")
"""Words before the colon that name the interface of a server."""
_FORMS = (
    "write offline, openai:NAME (such as openai:gpt-4o-mini), responses:NAME, anthropic:NAME, gemini:NAME, module:attr "
    "or file.py:attr"
)

_NAME = re.compile(r"\w[\w./-]*(?<!\.py)")
"""A model's name without its provider, not a file."""


def model_from_ref(ref: str) -> Model:
    """Return the model that a reference names.

    Args:
        ref: `offline`; `openai:NAME`, `responses:NAME`, `anthropic:NAME` or `gemini:NAME`, which `?FLAG=VALUE&...` may
            follow; or `module:attr` or `file.py:attr`, which are imported and may name a model or a function that makes
            one.

    Returns:
        The model.

    Raises:
        GraphUnknown: there is no such model.
    """
    kind, colon, name = ref.partition(":")
    if kind == "offline" and not name:
        from orchestrator.models.offline import OfflineModel

        return OfflineModel()
    if colon and kind in VENDORS:
        if not name:
            raise GraphUnknown(f"model {ref!r} does not name a model of {kind}; {_FORMS}")
        if redact(name) != name:
            raise GraphUnknown(
                f"model '{kind}:{redact(name)}': it holds a secret, and references are stored with a run: "
                f"write the model's name; its key comes from the environment, {vendor(kind)('').wire.keys[0]}"
            )
        return _behind_server(kind, *name.partition("?")[::2])
    if not colon:
        named = f": did you mean {f'openai:{ref}'!r}?" if _NAME.fullmatch(ref) else ""
        guess = did_you_mean(ref, ("offline",)) or named
        raise GraphUnknown(f"model {redact(ref)!r} is unknown{f'{redact(guess)} Or' if guess else ';'} {_FORMS}")
    found: Any = None
    if kind.endswith(".py"):
        module = module_of_file(kind)
        found = attribute(module, name)
        if found is None:
            raise GraphUnknown(f"model {ref!r}: {kind} has no {name!r}{did_you_mean(name, vars(module))}")
    else:
        found = resolve(ref)
    if not _is_model(found) and callable(found):
        found = found()
    if not _is_model(found):
        raise GraphUnknown(
            f"model {ref!r} is not a model but a {type(found).__name__}; a model has a `name` and `complete()`"
        )
    return found


def vendor(kind: str) -> Callable[..., ServerModel]:
    """Return what makes the models of a kind of `VENDORS`."""
    if kind == "anthropic":
        from orchestrator.models.anthropic import AnthropicModel

        return AnthropicModel
    if kind == "gemini":
        from orchestrator.models.gemini import GeminiModel

        return GeminiModel
    from orchestrator.models.openai import OpenAIModel

    return OpenAIModel if kind == "openai" else partial(OpenAIModel, api="responses")


def _behind_server(kind: str, name: str, query: str) -> Model:
    """Return a model of a server. `query`: the flags after the question mark."""
    plain = vendor(kind)(name, price=_prices())
    if not query:
        return plain
    from orchestrator.models.profile import Profile
    from orchestrator.models.text import TextProtocol

    default = plain.default_profile
    try:
        given: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
        if "ends" in given:
            words = given["ends"]
            ends = json.loads(words) if words.startswith("{") else dict.fromkeys(words.split(","), "stop")
            given["ends"] = {**default.ends, **ends}
        protocol = given.pop("protocol", None)
        streams = TypeAdapter(bool).validate_python(given.pop("streams", True))
        profile = Profile.model_validate({**default.model_dump(exclude_unset=True), **given})
        model = vendor(kind)(name, price=_prices(), profile=profile, streams=streams)
        return model if protocol is None else TextProtocol(model, protocol)
    except ValueError as error:
        why = explain(error) if isinstance(error, ValidationError) else error
        known = ", ".join(("streams", "protocol", *Profile.model_fields))
        raise GraphUnknown(f"model '{kind}:{name}?{query}': {why}; write FLAG=VALUE&...; flags are {known}") from None


def _prices() -> dict[str, Price] | None:
    """Return the price table of the file that `ORCHESTRATOR_PRICES` names: `{"NAME": {"input": 2.5, "output": 10}}`.

    Raises:
        GraphUnknown: the file does not exist, or is not a price table.
    """
    path = os.environ.get("ORCHESTRATOR_PRICES")
    if not path:
        return None
    keep_private(path)
    try:
        return TypeAdapter(dict[str, Price]).validate_json(Path(path).read_bytes())
    except (OSError, ValidationError) as error:
        why = explain(error) if isinstance(error, ValidationError) else error.strerror
        raise GraphUnknown(
            f"ORCHESTRATOR_PRICES: {path!r} is not a price table ({why}); "
            'write {"NAME": {"input": 2.5, "output": 10}}, per million tokens'
        ) from None


def _is_model(thing: object) -> TypeGuard[Model]:
    return not isinstance(thing, type) and callable(getattr(thing, "complete", None))
