"""Around every command: errors become a message on stderr and an exit code, results an exit code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any

import typer

from orchestrator.cli.dotenv import load_dotenv
from orchestrator.cli.error_texts import error_text
from orchestrator.cli.exits import INTERRUPTED, UsageError, of_error
from orchestrator.cli.output import discard_output, show_log, warn
from orchestrator.cli.process_end import settle
from orchestrator.cli.redaction import redact_own, redacted
from orchestrator.errors import OrchestratorError


def guarded(command: Callable[..., int]) -> Callable[..., None]:
    """A command that gives its exit code, as typer wants it.

    A parameter of the command that is a dataclass stands for several options: its fields.
    """
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group: Any = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            groups[name] = group
            options += inspect.signature(group, eval_str=True).parameters.values()
        else:
            options.append(parameter)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        def work() -> int:
            load_dotenv()
            redact_own()
            show_log()
            for name, group in groups.items():
                given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
            return command(**given)

        store = given.get("store") or next((one.store for one in given.values() if hasattr(one, "store")), None)
        code = _code(work, store)
        settle(code)
        raise typer.Exit(code)

    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options]
    vars(wrapper).update(__signature__=inspect.Signature(options))
    wrapper.__annotations__ = {one.name: one.annotation for one in options}
    return wrapper


def _code(command: Callable[[], int], store: str | None = None) -> int:
    try:
        return command()
    except BrokenPipeError:
        discard_output()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except ExceptionGroup as group:
        found = alone(group)
        if isinstance(found, ExceptionGroup):
            raise
        return _code(_raiser(found), store)
    except (UsageError, OrchestratorError, OSError) as error:
        warn(f"error: {redacted(error_text(error, store))}")
        return of_error(error)


def alone(error: Exception) -> Exception:
    """The one error that a group of tasks failed with; the group, if there are several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _raiser(error: Exception) -> Callable[[], int]:
    def again() -> int:
        raise error

    return again
