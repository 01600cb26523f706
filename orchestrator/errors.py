"""Every error that this library raises, in one tree.

    OrchestratorError
    ├── GraphError                a graph, or a reference to one, is wrong
    │   ├── InvalidGraph          the checks found problems (all of them, in one report)
    │   ├── ArrowSyntaxError      a statement of the arrow text cannot be read
    │   ├── GraphUnknown          code of a graph, tool or model is needed and was not given
    │   ├── UntrustedCode         a graph file names code that it may not use
    │   ├── GraphChanged          a run sits on structure that is no longer there
    │   │   └── ToolsChanged      tools that a run may still call are missing or take other arguments
    │   └── NotSerialisable       a part of a graph has no data form
    ├── RunError                  a run cannot do what was asked
    │   ├── RunUnknown
    │   ├── RunExists
    │   ├── RunEnded
    │   ├── RunConflict           somebody else moved, or holds, the run
    │   ├── QuestionUnknown
    │   ├── StaleAnswer
    │   ├── InvalidAnswer         (also an `InvalidValue`)
    │   ├── ReplayMismatch        changed code would leave a settled irreversible effect behind
    │   └── RunFailed             a run whose completion was demanded did not complete
    ├── InvalidValue              a value cannot be stored and read back: it is refused (also a `ValueError`)
    ├── StepError                 a step failed
    │   ├── InvalidInput          (also an `InvalidValue`)
    │   ├── InvalidUpdate         (also an `InvalidValue`)
    │   ├── InvalidOutcome
    │   ├── ConflictingUpdate
    │   ├── StepTimeout
    │   ├── AgentError            a model's reply cannot be used
    │   │   └── InvalidArguments  (also an `InvalidValue`)
    │   ├── UserDenied
    │   ├── EffectFailed          a recorded effect ended in an error
    │   ├── ToolFailed            a call of a tool failed where that is an error; it holds the `ToolResult`
    │   └── SecretInState
    ├── ToolError                 a tool says why it cannot do what was asked
    │   └── ToolUnavailable       the server that has the tool cannot be reached; nothing was called
    ├── ToolDisconnected          the server was lost in the middle of a call (also a `ConnectionError`)
    ├── ModelError                a model call failed
    │   ├── ModelUnavailable      worth trying again (`retryable`)
    │   ├── ReplyTooLarge         the answer has more bytes than are read
    │   └── ModelMisconfigured    key, model name, address or account: to be mended outside of the graph
    └── StoreError                a journal cannot be read or written
        ├── StoreCorrupt
        ├── StoreUnavailable      disk full, read-only file, locked, removed
        ├── StoreUnsupported      a file where no store can be kept safely: a network file system
        └── StoreTooNew

Each message names the thing, what is wrong with it, and the mend. `retryable` says whether the same call
may succeed when it is simply made again; `Retry` reads it. All of them can be pickled and copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from orchestrator.problem import Problem

if TYPE_CHECKING:
    from pydantic import JsonValue


def message_of(error: BaseException) -> str:
    """An error's message, as text that can be stored, also of one that cannot tell it."""
    try:
        text = str(error)
    except Exception as fault:  # a `__str__` of the user's
        text = f"it has no message: its __str__ raised {type(fault).__name__}"
    return text.encode("utf-8", "backslashreplace").decode()


class OrchestratorError(Exception):
    """Base of every error of this library."""

    retryable: ClassVar[bool] = False
    resumable: ClassVar[bool] = False
    """Whether it is the surroundings that are at fault: a run that ends by it is interrupted, not failed."""

    def __reduce__(self) -> tuple[object, ...]:
        # As it is, without its `__init__`, which takes other arguments than the message.
        return _restored, (type(self), self.args), self.__dict__.copy()


def _restored(kind: type[OrchestratorError], args: tuple[object, ...]) -> OrchestratorError:
    return kind.__new__(kind, *args)


class InvalidValue(OrchestratorError, ValueError):
    """Raised when a value cannot be stored and read back, before anything is stored; `where` names its place.

    Too many levels, too many bytes, NaN, half a surrogate pair, bytes that are no text, no JSON form at all.
    """

    def __init__(self, message: str, *, where: str = "") -> None:
        self.where = where
        super().__init__(message)


class GraphError(OrchestratorError):
    """Raised when a graph, or a reference to one, is wrong."""


class InvalidGraph(GraphError):
    """Raised when a graph is built and its checks find problems; `problems` holds them all."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = "\n".join(f"  - {problem.message}" for problem in self.problems)
        super().__init__(f"graph {name!r} has {count} problem{'s' if count != 1 else ''}:\n{lines}")


class ArrowSyntaxError(GraphError):
    """Raised when a statement of the arrow text cannot be read; `line` and `column` count from 1."""

    def __init__(self, fault: str, *, line: int, column: int, text: str = "", mend: str = "") -> None:
        self.line, self.column = line, column
        pointer = f"\n  {text}\n  {' ' * (column - 1)}^" if text else ""
        super().__init__(f"line {line}, column {column}: {fault}{'; ' + mend if mend else ''}{pointer}")


class GraphUnknown(GraphError):
    """Raised when code of a graph, node, tool or model is needed and was not given."""


class UntrustedCode(GraphError):
    """Raised when a graph file names code in modules that are not trusted, or code of another kind than is needed.

    `modules` are those that would have to be trusted; empty where trusting them would not help.
    """

    def __init__(self, refs: Sequence[str], fault: str = "") -> None:
        self.modules = tuple(dict.fromkeys(ref.partition(":")[0] for ref in refs))
        super().__init__(
            fault
            or f"the graph file names code of modules that are not trusted: {', '.join(map(repr, refs))}. If you know "
            f"what they do, load it with trust={list(self.modules)!r}"
        )


class GraphChanged(GraphError):
    """Raised when the structure on or ahead of a run's live tokens is not what it was started with."""


class ToolsChanged(GraphChanged):
    """Raised when tools that a run was started with, and may still call, are missing or take other arguments."""


class NotSerialisable(GraphError):
    """Raised when a part of a graph cannot be written as data, such as a closure."""


class RunError(OrchestratorError):
    """Raised when a run cannot do what was asked of it."""


class RunUnknown(RunError):
    """Raised when a store holds no run of that id."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {run_id!r} in this store; `orchestrator runs` lists those that there are")


class RunExists(RunError):
    """Raised when a run id is taken by a run of another graph or input."""

    def __init__(self, run_id: str, why: str = "another run has this id") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} exists already: {why}; choose another run id")


class RunEnded(RunError):
    """Raised when something is asked of a run that has ended."""

    def __init__(self, run_id: str, status: str) -> None:
        self.run_id, self.status = run_id, status
        super().__init__(f"run {run_id!r} has ended ({status}); fork it to go on from one of its checkpoints")


class RunConflict(RunError):
    """Raised when another executor holds the run or has moved its head."""

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r}: {why}")


class QuestionUnknown(RunError):
    """Raised when a run has no question of that id."""

    def __init__(self, run_id: str, question: str) -> None:
        self.run_id, self.question = run_id, question
        super().__init__(f"run {run_id!r} has no question {question!r}; `run.waiting` lists the open ones")


class StaleAnswer(RunError):
    """Raised when an answer comes for a question that is closed or has changed; nothing is changed by it."""


class InvalidAnswer(RunError, InvalidValue):
    """Raised when an answer does not fit its question; nothing is changed by it."""


class ReplayMismatch(RunError):
    """Raised when changed code would leave a settled irreversible effect behind."""


class RunFailed(RunError):
    """Raised when a run that should have completed did not: `run.raise_for_status()`, and `check=True`.

    Attributes:
        run_id: the run.
        status: how it ended, or why it goes on no further: `failed`, `exhausted`, `cancelled`, `paused` ...
        type: the class name of the error that it failed with, or an empty text.
        traceback: where that was raised, as text, or an empty text.
    """

    def __init__(self, run_id: str, status: str, why: str = "", *, type: str = "", traceback: str = "") -> None:  # noqa: A002  a name of the contract
        self.run_id, self.status, self.type, self.traceback = run_id, status, type, traceback
        message = f"run {run_id!r} {'failed' if status == 'failed' else f'is {status}'}{f': {why}' if why else ''}"
        super().__init__(f"{message}\n\n{traceback}" if traceback else message)


class StepError(OrchestratorError):
    """Raised when a step fails."""


class InvalidInput(StepError, InvalidValue):
    """Raised when the input of a graph does not fit its state."""


class InvalidUpdate(StepError, InvalidValue):
    """Raised when an update names an unknown field or carries a value of the wrong type."""


class InvalidOutcome(StepError):
    """Raised when a node returns an outcome that it did not declare, or a map's field is not a list."""


class ConflictingUpdate(StepError):
    """Raised when branches that know nothing of each other wrote one field that has no reducer."""


class StepTimeout(StepError):
    """Raised when a step, or a call that it made, took longer than its `timeout`."""


class AgentError(StepError):
    """Raised when a model's reply cannot be used: unknown tool, arguments that do not fit, wrong form."""


class InvalidArguments(AgentError, InvalidValue):
    """Raised when arguments of a tool cannot be stored and read back; the tool is not called."""


class UserDenied(StepError):
    """Raised when a person refused what a node asked for and no edge takes the refusal."""


class EffectFailed(StepError):
    """Raised when a recorded effect is replayed that ended in an error; `type` is the first error's name."""

    def __init__(self, message: str, *, type: str = "EffectFailed") -> None:  # noqa: A002  a name of the contract
        self.type = type
        super().__init__(message)


class FailedCall(Protocol):
    """A call's `ToolResult`, as `ToolFailed` holds it."""

    @property
    def output(self) -> JsonValue: ...
    @property
    def error(self) -> str | None: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def metadata(self) -> dict[str, JsonValue]: ...
    @property
    def text(self) -> str: ...
    @property
    def traceback(self) -> str: ...


class ToolFailed(StepError):
    """Raised when a call of a tool failed where that is an error: `ctx.tool(..., check=True)`, and `Execute`.

    `tool` is its name, and `result` all that came of the call.
    """

    def __init__(self, tool: str, result: FailedCall) -> None:
        self.tool, self.result = tool, result
        why = result.error or f"exit code {result.exit_code}: {result.text}"
        if len(why) > _MOST_SAID:
            why = f"{why[:_MOST_SAID]}... ({len(why) - _MOST_SAID} characters more)"
        super().__init__(f"tool {tool!r} failed: {why}")


_MOST_SAID = 2_000
"""Characters of a tool's words that `ToolFailed` repeats; `result` has all of them."""


class SecretInState(StepError):
    """Raised when a secret is about to enter the state or a tool's arguments, and so the journal."""


class ToolError(OrchestratorError):
    """Raised by a tool that says why it cannot do what was asked."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class PoolTimeout(ToolError):
    """Raised when no instance of a pool was released in time: the call did not begin."""


class ToolUnavailable(ToolError):
    """Raised when the server that has a tool cannot be started or reached: no call was made."""

    retryable = True


class ToolDisconnected(OrchestratorError, ConnectionError):
    """Raised when the server that has a tool was lost in the middle of a call: what became of it is not known."""

    retryable = True


class ModelError(OrchestratorError):
    """Raised when a model call failed."""


class ModelUnavailable(ModelError):
    """Raised when a model could not be reached or refused for now; `retry_after` is in seconds."""

    retryable = True
    resumable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ModelMisconfigured(ModelError):
    """Raised when a server will not answer before a key, a model's name, an address or an account is mended."""

    resumable = True


class ReplyTooLarge(ModelError):
    """Raised when a server's answer has more bytes than are read.

    The same call would end so again, but not with a model that reads more: the run is interrupted, and can be resumed.
    """

    resumable = True


class StoreError(OrchestratorError):
    """Raised when a journal cannot be read or written."""


class StoreCorrupt(StoreError):
    """Raised when a stored record cannot be trusted; what precedes it stays readable.

    `seq` is 0 where it is not a record, but the run's row in the list of runs.
    """

    def __init__(self, run_id: str, seq: int, why: str) -> None:
        self.run_id, self.seq = run_id, seq
        what = f"record {seq}" if seq else "its row in the list of runs"
        mend = "restore the store from a copy"
        if seq > 1:
            mend = (
                f"records before it are readable (`orchestrator show {run_id} --at {seq - 1}`, "
                f"`load({run_id!r}, at={seq - 1})`); to go on, {mend}"
            )
        super().__init__(f"run {run_id!r}: {what} is damaged ({why}); {mend}")


class StoreUnavailable(StoreError):
    """Raised when the store cannot be used now: disk full, file read-only, locked, removed or replaced."""


class StoreUnsupported(StoreError):
    """Raised when a store's file is where it cannot be kept safely, such as on a network file system."""


class StoreTooNew(StoreError):
    """Raised when a store was written by a newer version of this library."""
