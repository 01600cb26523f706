"""Around every command: errors become a message on stderr and an exit code, results an exit code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import typer

from orchestrator.cli.dotenv import load_dotenv
from orchestrator.cli.exits import INTERRUPTED, UsageError, of_error
from orchestrator.cli.output import nobody_reads, show_log, warn
from orchestrator.cli.process_end import settle
from orchestrator.cli.redaction import redacted
from orchestrator.errors import OrchestratorError


def guarded(command: Callable[..., int]) -> Callable[..., None]:
    """A command that gives its exit code, as typer wants it."""

    @wraps(command)
    def wrapper(*args: object, **kwargs: object) -> None:
        def work() -> int:
            load_dotenv()
            show_log()
            return command(*args, **kwargs)

        code = _code(work)
        settle(code)
        raise typer.Exit(code)

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
        warn(f"error: {redacted(str(error))}")
        return of_error(error)
    except ExceptionGroup as group:
        found = alone(group)
        if isinstance(found, ExceptionGroup):
            raise
        return _code(_raiser(found))
    except OSError as error:
        warn(f"error: {redacted(str(error))}")
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
