"""Commands about models: model try."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode, urlsplit

import typer

from orchestrator.cli import exits, options
from orchestrator.cli.launch_refs import load_model
from orchestrator.cli.output import out, out_json, out_table, quoted, redacted
from orchestrator.cli.signals import run_async
from orchestrator.models.probe import Probed, behind_server, probe
from orchestrator.models.refs import VENDORS
from orchestrator.render.terminal.tables import Column

if TYPE_CHECKING:
    from orchestrator.models.server import ServerModel


def model_try(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{', '.join(f'{kind}:NAME' for kind in VENDORS)}, module:attr or file.py:attr.",
            show_default=False,
        ),
    ],
    json: options.Json = False,
) -> int:
    """Find out what a model and its server support, by about ten requests.

    Two of the requests have 5,000 and 20,000 tokens, unless the server reports the context window in another way.
    Prints what was found, and the profile to use in Python and on the command line. Exit code 1 if the model does not
    answer, or its replies are empty.

    Example: OPENAI_BASE_URL=http://127.0.0.1:8080/v1 orchestrator model try openai:qwen3
    """
    model = behind_server(load_model(ref))
    if model is None:
        raise exits.UsageError(f"model try: {ref} is not a model behind a server; write openai:NAME")
    default = model.default_profile

    async def ask() -> Probed:
        async with model:
            return await probe(model)

    found = run_async(ask)
    flags = {name: value for name, value in found.profile.model_dump().items() if value != getattr(default, name)}
    python, option = _python(ref, model, found, flags), _option(ref, found, flags)
    if json:
        rows = {one.feature: {"found": one.found, "detail": redacted(one.detail)} for one in found.findings}
        profile = found.profile.model_dump()
        out_json(
            {"model": model.name, "features": rows, "window": found.window, "profile": profile, "changes": flags}
            | {"streams": found.streams, "text_tools": found.text_tools, "answers": found.answers}
            | {"python": python, "option": option}
        )
        return exits.COMPLETED if found.answers else exits.FAILED
    columns = (Column("feature"), Column("found"), Column("detail", least=24))
    out_table(columns, [(one.feature, one.found, str(redacted(one.detail))) for one in found.findings])
    out(f"\npython:  {python}\noption:  {option}")
    return exits.COMPLETED if found.answers else exits.FAILED


def _python(ref: str, model: ServerModel, found: Probed, flags: dict[str, object]) -> str:
    """Return the Python expression for the model, without secrets."""
    arguments = [f"profile=Profile({', '.join(f'{name}={value!r}' for name, value in flags.items())})"] if flags else []
    arguments += [] if found.streams else ["streams=False"]
    place = [repr(model.name), *map(repr, _place(model))] if _names_server(ref) else ["..."]
    arguments = [*place, *arguments]
    arguments += ["api='responses'"] if model.wire.ref == "responses" else []
    text = f"{type(model).__name__}({', '.join(arguments)})"
    return f"TextProtocol({text})" if found.text_tools else text


def _names_server(ref: str) -> bool:
    return ref.partition(":")[0] in VENDORS


def _place(model: ServerModel) -> list[str]:
    """Return the address in the environment without a password, if it is set."""
    written = os.environ.get(model.wire.address)
    if not written:
        return []
    parts = urlsplit(written)
    return [parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()]


def _option(ref: str, found: Probed, flags: dict[str, object]) -> str:
    """Return the option of the command line for the model."""
    if not _names_server(ref):
        return quoted(("--model", ref))
    asked = {
        name: str(value).lower() if isinstance(value, bool) else ",".join(value) if isinstance(value, dict) else value
        for name, value in flags.items()
    }
    asked |= {} if found.streams else {"streams": "false"}
    asked |= {"protocol": "json"} if found.text_tools else {}
    query = f"?{urlencode(asked)}" if asked else ""
    return quoted(("--model", ref.partition("?")[0] + query))
