"""Around every command: errors become a message on stderr and an exit code, results an exit code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from orchestrator.cli.exits import INTERRUPTED, UsageError, of_error
from orchestrator.cli.output import nobody_reads, warn
from orchestrator.errors import OrchestratorError

P = ParamSpec("P")


def guarded(command: Callable[P, int]) -> Callable[P, None]:
    """A command that gives its exit code, as typer wants it."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        raise typer.Exit(_code(lambda: command(*args, **kwargs)))

    return wrapper


def _code(command: Callable[[], int]) -> int:
    try:
        return command()
    except BrokenPipeError:
        nobody_reads()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except (UsageError, OrchestratorError) as error:
        warn(f"error: {error}")
        return of_error(error)
    except ExceptionGroup as group:
        alone = _alone(group)
        if isinstance(alone, ExceptionGroup):
            raise
        return _code(_raiser(alone))
    except OSError as error:
        warn(f"error: {error}")
        return of_error(error)


def _alone(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _raiser(error: Exception) -> Callable[[], int]:
    def again() -> int:
        raise error

    return again
