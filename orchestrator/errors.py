"""Every error that this library raises, in one tree.

    OrchestratorError
    ├── GraphError                a graph, or a reference to one, is wrong
    │   ├── InvalidGraph          the checks found problems (all of them, in one report)
    │   ├── ArrowSyntaxError      a statement of the arrow text cannot be read
    │   ├── GraphUnknown          code of a graph, tool or model is needed and missing
    │   ├── UntrustedCode         a graph file refers to code that it may not use
    │   ├── GraphChanged          the structure that a run depends on changed
    │   │   ├── ToolsChanged      tools that a run may still call are missing or take other arguments
    │   │   └── InvalidMigration  a migration does not fit the run, or the new version of its graph
    │   └── NotSerialisable       a part of a graph has no data form
    ├── RunError                  an operation on a run failed
    │   ├── RunUnknown
    │   ├── RunExists
    │   ├── RunEnded
    │   ├── RunConflict           another executor holds, or moved, the run
    │   ├── RunBusy               the run does not accept such an event now
    │   ├── Ambiguous             labels match no unfinished run, or several
    │   ├── QuestionUnknown
    │   ├── StaleAnswer
    │   ├── InvalidAnswer         (also an `InvalidValue`)
    │   ├── ReplayMismatch        changed code would leave a settled irreversible effect behind
    │   └── RunFailed             a run that had to complete did not
    ├── InvalidValue              a value cannot be stored and read back (also a `ValueError`)
    ├── MemoryFull                the memory across runs has no room for a value
    ├── StepError                 a step failed
    │   ├── InvalidInput          (also an `InvalidValue`)
    │   ├── InvalidUpdate         (also an `InvalidValue`)
    │   ├── InvalidOutcome
    │   ├── ConflictingUpdate
    │   ├── StepTimeout
    │   ├── AgentError            a model's reply is unusable
    │   │   └── InvalidArguments  (also an `InvalidValue`)
    │   ├── UserDenied
    │   ├── EffectFailed          a recorded effect failed
    │   ├── ToolFailed            a tool call failed, and that is an error; holds the `ToolResult`
    │   └── SecretInState
    ├── ToolError                 a tool explains why it cannot do its work
    │   ├── ToolUnavailable       the tool's server cannot be reached; no call was made
    │   └── ResultRefused         a call returned, and its result cannot be used
    ├── ToolDisconnected          the server was lost during a call (also a `ConnectionError`)
    ├── ModelError                a model call failed
    │   ├── ModelUnavailable      temporary (`retryable`)
    │   ├── ReplyIncomplete       the reply has no known end, or lacks the tool calls that it announces
    │   ├── ReplyTooLarge         the answer exceeds the size limit
    │   ├── RequestTooLong        the request is longer than the model's window
    │   └── ModelMisconfigured    wrong key, model name, address or account
    ├── EngineUnavailable         an engine that delivers runs cannot be asked (`retryable`)
    └── StoreError                a journal cannot be read or written
        ├── StoreCorrupt
        ├── RunArchived           a run's records are in an archive that is not given
        ├── EncryptionKeyMissing  values were encrypted with a key that is not here
        ├── StoreUnavailable      disk full, read-only file, locked, removed
        ├── StoreUnsupported      the file is on an unsafe file system, such as a network one
        ├── InvalidExport         a file of exported runs cannot be imported
        └── StoreTooNew

Each message names the object, the problem and a suggested fix. `retryable` says whether repeating the same call may
succeed; `Retry` uses it. All errors can be pickled and copied.

The module also has the data that errors carry: `Problem`, a fault of a graph, and `Archived`, the place of a run's
records.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from pydantic import JsonValue


DISTRIBUTION = "agent-graph-orchestrator"
"""The name under which `pip` installs this library."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    It works in any folder, if it runs in the environment of this library: pip then adds the packages of the extra to
    the installed library, and looks for the library in no index.
    """
    return f'python -m pip install "{DISTRIBUTION}[{extra}]"'


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a graph: `message` names the place and the fix, `code` the check that found it; see docs/errors.md."""

    code: str
    message: str
    nodes: tuple[str, ...] = ()
    edges: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" if self.code else self.message


@dataclass(frozen=True, slots=True)
class Archived:
    """The object in an archive that contains the records of a run; see `orchestrator.stores.archive`."""

    archive: str
    """The URL of the archive when the object was written."""
    name: str
    """The object's name in it."""
    sha256: str
    """The digest of the object's bytes, in hexadecimal digits."""
    size: int
    """Bytes of the object."""
    at: float
    """The time at which it was written, Unix seconds."""

    def line(self) -> str:
        """Return the place of the records on one line."""
        return f"{self.place}, object {self.name} ({self.size:,} bytes)"

    def to_json(self) -> dict[str, object]:
        """Return the plain JSON used by commands and the web API."""
        return {"archive": self.place, "name": self.name, "sha256": self.sha256, "size": self.size, "at": self.at}

    @property
    def place(self) -> str:
        """URL of the archive without a password, for display."""
        try:
            parts = urlsplit(self.archive)
        except ValueError:
            return "an archive whose URL cannot be read"
        host = parts.netloc.rpartition("@")[2]
        return self.archive if host == parts.netloc else urlunsplit(parts._replace(netloc=f"***@{host}"))


def message_of(error: BaseException) -> str:
    """Return an error's message as text that can be stored, even if its `__str__` fails."""
    try:
        text = str(error)
    except Exception as fault:  # a `__str__` of the user
        text = f"it has no message: its __str__ raised {type(fault).__name__}"
    return text.encode("utf-8", "backslashreplace").decode()


def described(error: BaseException) -> str:
    """Return an error's message, with its type if the message alone says too little: an empty one, or a key."""
    text = message_of(error)
    kind = error.type if isinstance(error, EffectFailed) else type(error).__name__
    if kind == "KeyError" or not any(map(str.isalpha, text)):
        return f"{kind}: {text}" if text.strip() else kind
    return text


class OrchestratorError(Exception):
    """Base of every error of this library."""

    retryable: ClassVar[bool] = False
    resumable: ClassVar[bool] = False
    """True if the cause is outside the run: a run that this error stops is interrupted, not failed."""
    typed: str = ""
    """The message for the command line: it names options and commands instead of arguments and calls."""

    def on_command_line(self, message: str) -> Self:
        """Return the error, with another message for users of the command line."""
        self.typed = message
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # Copied without `__init__`, which takes other arguments than the message.
        return _restored, (type(self), self.args), self.__dict__.copy()


def _restored(kind: type[OrchestratorError], args: tuple[object, ...]) -> OrchestratorError:
    return kind.__new__(kind, *args)


class InvalidValue(OrchestratorError, ValueError):
    """Raised when a value cannot be stored and read back, before anything is stored; `where` names its location.

    Causes are too many levels, too many bytes, NaN, unpaired surrogates, bytes that are not text, or no JSON form.
    """

    def __init__(self, message: str, *, where: str = "") -> None:
        self.where = where
        super().__init__(message)


class MemoryFull(OrchestratorError):
    """Raised when the memory across runs has no room for a value; nothing was changed."""


class GraphError(OrchestratorError):
    """Raised when a graph, or a reference to one, is wrong."""


class InvalidGraph(GraphError):
    """Raised when a graph is built and its checks find problems; `problems` contains all of them."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"graph {name!r} has {count} problem{'s' if count != 1 else ''}:\n{lines}")


class ArrowSyntaxError(GraphError):
    """Raised when a statement of the arrow text cannot be read; `line` and `column` count from 1."""

    def __init__(self, fault: str, *, line: int, column: int, text: str = "", fix: str = "") -> None:
        self.line, self.column, self.text = line, column, text
        pointer = f"\n  {text}\n  {' ' * (column - 1)}^" if text else ""
        self.fault = f"{fault}{'; ' + fix if fix else ''}{pointer}"
        """The message without its location."""
        super().__init__(f"line {line}, column {column}: {self.fault}")

    def in_graph(self, name: str) -> ArrowSyntaxError:
        """Return the error with the name of its graph in the message: the line counts in the text of the edges."""
        self.args = (f"graph {name!r}: line {self.line} of its edges, column {self.column}: {self.fault}",)
        return self


class GraphUnknown(GraphError):
    """Raised when the code of a graph, node, tool or model is needed and missing."""


class UntrustedCode(GraphError):
    """Raised when a graph file refers to code in modules that are not trusted, or to code of the wrong kind.

    `modules` are the modules to trust; empty if trusting them would not help.
    """

    def __init__(self, refs: Sequence[str], fault: str = "") -> None:
        self.modules = tuple(dict.fromkeys(ref.partition(":")[0] for ref in refs))
        super().__init__(
            fault
            or f"the graph file refers to code in modules that are not trusted: {', '.join(map(repr, refs))}. If you "
            f"know what they do, load it with trust={list(self.modules)!r}"
        )
        if not fault:
            options = shlex.join([word for module in self.modules for word in ("--trust", module)])
            self.typed = (
                f"the graph file refers to code in modules that are not trusted: {', '.join(map(repr, refs))}. If you "
                f"know what they do, add {options}"
            )


class GraphChanged(GraphError):
    """Raised when a run cannot continue in the current graph without a decision or a migration.

    Attributes:
        fault: the message without the solution.
        run_id: the run; for a fork that cannot be made, the run to fork.
        options: options of `orchestrator resume RUN` (or `fork`) that solve the problem; None if none are known.
        call: the same options as arguments of `executor.resume(run_id, ...)` (or `fork`).
        guesses: the assumptions behind these options, line by line.
        undecided: removed state fields with the new fields that each may have become, if there are several.
        verb: the operation that was refused: `resume` or `fork`.
        command: the command with these options; None if none are known.
    """

    _now: ClassVar[str] = "the new version"
    _beside: ClassVar[tuple[str, str]] = (
        "give the executor the version that it has, too: Executor(graphs=[new, old])",
        "name the version that it has with --graph",
    )

    def __init__(
        self,
        fault: str,
        *,
        run_id: str = "",
        options: Sequence[str] | None = None,
        call: str = "",
        guesses: Sequence[str] = (),
        undecided: Mapping[str, Sequence[str]] | None = None,
        verb: str = "resume",
    ) -> None:
        self.fault, self.run_id, self.options, self.call, self.verb = fault, run_id, options, call, verb
        self.guesses, self.undecided = tuple(guesses), dict(undecided or {})
        self.command = command = None if options is None else shlex.join(("orchestrator", verb, run_id, *options))
        choose = "name one, Migration(state={{NEW: {0!r}}}), or give its value up, Migration(drop=[{0!r}])"
        super().__init__(self._message(f" {verb}({run_id!r}, {call}), or\n  {command}", choose, self._beside[0]))
        self.typed = self.with_command(command)

    def with_command(self, command: str | None) -> str:
        """Return the message for the command line. `command`: the command that solves the problem, if it is known."""
        choose = "name one with --rename state.{0}=NEW, or give its value up with --drop state.{0}"
        return self._message(f"\n  {command}", choose, self._beside[1])

    def _message(self, way: str, choose: str, beside: str) -> str:
        """Return the fault, the solution and its assumptions, or the choices; and an alternative."""
        lines = [self.fault]
        if self.options is not None:
            lines.append(f"To {'fork' if self.verb == 'fork' else 'continue'} it with {self._now}:{way}")
            if self.guesses:
                lines += ["This is a guess, check it first:", *(f"  - {guess}" for guess in self.guesses)]
        elif self.run_id and not self.undecided:
            lines.append("No migration to the new version is known that works.")
        for name, candidates in self.undecided.items():
            listed = " or ".join(map(repr, candidates))
            lines.append(f"State field {name!r} may have become {listed}: {choose.format(name)}.")
        if self.run_id and self.verb == "resume":
            lines.append(f"To continue it unchanged, {beside}.")
        return "\n".join(lines)


class ToolsChanged(GraphChanged):
    """Raised when tools that a run was started with, and may still call, are missing or take other arguments."""

    _now = "these tools"
    _beside = (
        "give the executor the tools as they were: Executor(tools=[...])",
        "name the tools as they were with --tools",
    )


class InvalidMigration(GraphChanged):
    """Raised when a `Migration` does not fit the run, or the new version of its graph. Nothing was journaled."""


class NotSerialisable(GraphError):
    """Raised when a part of a graph cannot be written as data, such as a closure."""


class RunError(OrchestratorError):
    """Raised when an operation on a run fails."""


class RunUnknown(RunError):
    """Raised when a store has no run with this id."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {run_id!r} in this store; `orchestrator runs` lists the existing ones")


class RunExists(RunError):
    """Raised when a run with another graph or input has this id."""

    def __init__(self, run_id: str, why: str = "another run has this id") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} exists already: {why}; choose another run id")


class RunEnded(RunError):
    """Raised when an operation needs a run that has not ended.

    Attributes:
        run_id: the run.
        status: how it ended.
        why: why it cannot be continued as it is, without names of arguments or options; may be empty.
    """

    def __init__(self, run_id: str, status: str, why: str = "", typed: str = "", said: str = "") -> None:
        self.run_id, self.status, self.why = run_id, status, said or why
        aim, call, command = _way_on(run_id, status)
        ended = f"run {run_id!r} has ended ({status})"
        super().__init__(f"{ended}; {why or f'{aim}: {call}{command}'}")
        self.typed = f"{ended}; {typed or why or f'{aim}: {command}'}"


def _way_on(run_id: str, status: str) -> tuple[str, str, str]:
    """Return how to continue a run that has ended: the purpose, the call, and the command."""
    name = shlex.quote(run_id)
    if status == "exhausted":
        call = "resume(run_id, retry=True, limits=Limits(...)), or "
        return "to continue it, raise its limits", call, f"`orchestrator resume {name} --retry --max-steps N`"
    if status in ("failed", "cancelled"):
        return "to continue it", "resume(run_id, retry=True), or ", f"`orchestrator resume {name} --retry`"
    aim = "start a new run; or fork it at one of its records, such as its first"
    return aim, "", f"`orchestrator fork {name} --at 1`"


class RunConflict(RunError):
    """Raised when another executor holds the run or has moved its head."""

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r}: {why}")


class RunBusy(RunError):
    """Raised when a run does not accept such an event now; the run does not change."""

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} {why}")


class Ambiguous(RunError):
    """Raised when labels match no unfinished run, or more than one where one is needed; `run_ids` lists the matches."""

    def __init__(self, labels: Mapping[str, str], run_ids: Sequence[str]) -> None:
        self.run_ids = tuple(run_ids)
        wanted = ", ".join(f"{name}={value}" for name, value in labels.items())
        if not run_ids:
            super().__init__(f"no unfinished run has the labels {wanted}")
            return
        listed = ", ".join(run_ids[:20]) + (f" and {len(run_ids) - 20} more" if len(run_ids) > 20 else "")
        super().__init__(
            f"{len(run_ids)} unfinished runs have the labels {wanted}: {listed}; name one, or send to all of them"
        )


class ContextMissing(RunError):
    """Raised when a run that was started with a context is resumed without one."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id!r} was started with a context, which is not stored: give it again (context=...), or give the "
            "executor a function that makes it, Executor(contexts=...)"
        )
        self.typed = (
            f"run {run_id!r} was started with a context, which is not stored, and which no option can give: continue "
            "it from Python, with context=... or Executor(contexts=...)"
        )


class QuestionUnknown(RunError):
    """Raised when a run has no question with this id."""

    def __init__(self, run_id: str, question: str) -> None:
        self.run_id, self.question = run_id, question
        fault = f"run {run_id!r} has no question {question!r}"
        super().__init__(f"{fault}; `run.waiting` lists the open ones")
        self.typed = f"{fault}; `orchestrator show {shlex.quote(run_id)}` lists the open ones"


class StaleAnswer(RunError):
    """Raised when an answer is for a question that is closed or has changed; the run does not change."""


class InvalidAnswer(RunError, InvalidValue):
    """Raised when an answer does not fit its question; the run does not change."""


class ReplayMismatch(RunError):
    """Raised when changed code would leave a settled irreversible effect behind."""


class RunFailed(RunError):
    """Raised by `run.raise_for_status()` and `check=True` when a run did not complete.

    Attributes:
        run_id: the run.
        status: how it ended, or why it stopped: `failed`, `exhausted`, `cancelled`, `paused` ...
        type: the class name of its error; may be empty.
        traceback: where the error was raised, as text; may be empty.
    """

    def __init__(self, run_id: str, status: str, why: str = "", *, type: str = "", traceback: str = "") -> None:  # noqa: A002  a public name
        self.run_id, self.status, self.type, self.traceback = run_id, status, type, traceback
        message = f"run {run_id!r} {'failed' if status == 'failed' else f'is {status}'}{f': {why}' if why else ''}"
        super().__init__(f"{message}\n\n{traceback}" if traceback else message)


class StepError(OrchestratorError):
    """Raised when a step fails."""


class InvalidInput(StepError, InvalidValue):
    """Raised when the input of a graph does not fit its state. `faults` names fields, each with what is wrong."""

    def __init__(self, message: str, *, where: str = "", faults: Sequence[tuple[str, str]] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__(message, where=where)


class InvalidUpdate(StepError, InvalidValue):
    """Raised when an update names an unknown field or has a value of the wrong type."""


class InvalidOutcome(StepError):
    """Raised when a node returns an outcome that it did not declare, or a map's field is not a list."""


class ConflictingUpdate(StepError):
    """Raised when concurrent branches wrote the same field, and it has no reducer."""


class StepTimeout(StepError):
    """Raised when a step, or a call that it made, took longer than its `timeout`."""


class AgentError(StepError):
    """Raised when a model's reply is unusable: unknown tool, arguments that do not fit, wrong form."""


class InvalidArguments(AgentError, InvalidValue):
    """Raised when arguments of a tool cannot be stored and read back; the tool is not called."""


class UserDenied(StepError):
    """Raised when a person denied a node's request, and no edge handles the denial."""


class EffectFailed(StepError):
    """Raised when a failed effect is replayed, or an effect raised a non-`Exception`; `type` names the original."""

    def __init__(self, message: str, *, type: str = "EffectFailed") -> None:  # noqa: A002  a public name
        self.type = type
        super().__init__(message)


class FailedCall(Protocol):
    """The interface of a call's `ToolResult` that `ToolFailed` uses."""

    @property
    def output(self) -> JsonValue: ...
    @property
    def error(self) -> str | None: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def fault(self) -> str: ...
    @property
    def metadata(self) -> dict[str, JsonValue]: ...
    @property
    def text(self) -> str: ...
    @property
    def traceback(self) -> str: ...


class ToolFailed(StepError):
    """Raised by `ctx.tool(..., check=True)` and `Execute` when a tool call failed.

    `tool` is the tool's name, and `result` is the whole result of the call.
    """

    def __init__(self, tool: str, result: FailedCall) -> None:
        self.tool, self.result = tool, result
        why = result.fault if result.error or result.output is None else f"exit code {result.exit_code}: {result.fault}"
        if len(why) > _MOST_SAID:
            why = f"{why[:_MOST_SAID]}... ({len(why) - _MOST_SAID} more characters)"
        super().__init__(f"tool {tool!r} failed: {why}")


_MOST_SAID = 2_000
"""Maximum number of characters of a tool's error that `ToolFailed` repeats; `result` has all of them."""


class SecretInState(StepError):
    """Raised when a secret is about to enter the state or a tool's arguments, and so the journal."""


class ToolError(OrchestratorError):
    """Raised by a tool to explain why it cannot do its work."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class PoolTimeout(ToolError):
    """Raised when no instance of a pool was released in time; the call did not start."""


class ToolUnavailable(ToolError):
    """Raised when the server of a tool cannot be started or reached; no call was made."""

    retryable = True


class ResultRefused(ToolError):
    """Raised when a call took effect but its result cannot be used.

    `returned` is the result as shortened, redacted text.
    """

    def __init__(self, message: str, returned: str = "") -> None:
        self.returned = returned
        super().__init__(message)


class ToolDisconnected(OrchestratorError, ConnectionError):
    """Raised when the server of a tool was lost during a call; the outcome of the call is unknown."""

    retryable = True


class ModelError(OrchestratorError):
    """Raised when a model call fails.

    `flag` names the flag of the `Profile` to change, if the server refused the request because of it.
    """

    flag: str = ""


class ModelUnavailable(ModelError):
    """Raised when a model cannot be reached or refuses temporarily; `retry_after` is in seconds."""

    retryable = True
    resumable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ModelMisconfigured(ModelError):
    """Raised when a server refuses calls until a key, a model's name, an address or an account is corrected."""

    resumable = True


class ReplyIncomplete(ModelError):
    """Raised when a reply cannot be taken as complete: its end is unknown, or tool calls that it announces are missing.

    The model is asked once more, if the call is retried at all. `usage` is the `Usage` of the reply, if it is known.
    """

    retryable = True
    attempts: ClassVar[int] = 2
    """Maximum number of tries, whatever a retry allows."""

    def __init__(self, message: str, *, usage: Any = None) -> None:
        self.usage = usage
        super().__init__(message)


class ReplyTooLarge(ModelError):
    """Raised when a server's answer exceeds the size limit.

    The same call would fail again, but not with a higher limit: the run is interrupted and resumable.
    """

    resumable = True


class RequestTooLong(ModelError):
    """Raised when a request is longer than the model's window, or than its server accepts.

    Nodes that ask with a conversation take the outcome `too_long` if an edge names it.
    """


class StoreError(OrchestratorError):
    """Raised when a journal cannot be read or written."""


class StoreCorrupt(StoreError):
    """Raised when a stored record is damaged; the records before it stay readable.

    `seq` is 0 if the damage is in the run's row in the list of runs, or in its object in an archive (`archive`).
    `fault` is the message without the fix.
    """

    def __init__(self, run_id: str, seq: int, why: str, *, archive: bool = False) -> None:
        self.run_id, self.seq = run_id, seq
        what = f"record {seq}" if seq else "its row in the list of runs"
        self.fault = fault = f"run {run_id!r}: {why}" if archive else f"run {run_id!r}: {what} is damaged ({why})"
        fix = f"restore the {'archive' if archive else 'store'} from a copy"
        if seq < 2:
            super().__init__(f"{fault}; {fix}")
            return
        command, call = f"orchestrator show {shlex.quote(run_id)} --at {seq - 1}", f"load({run_id!r}, at={seq - 1})"
        super().__init__(f"{fault}; records before it are readable (`{command}`, `{call}`); to continue, {fix}")
        self.typed = f"{fault}; records before it are readable: `{command}`; to continue, {fix}"


class RunArchived(StoreError):
    """Raised when the records of a run are in an archive, and the store was opened without one. Nothing was changed.

    `archived` gives their location.
    """

    resumable = True

    def __init__(self, run_id: str, archived: Archived) -> None:
        self.run_id, self.archived = run_id, archived
        super().__init__(
            f"run {run_id!r}: its records are in the archive {archived.place} (object {archived.name!r}); give that "
            "archive: Executor(archive=...), or set ORCHESTRATOR_ARCHIVE"
        )


class EncryptionKeyMissing(StoreError):
    """Raised when stored values are encrypted and cannot be decrypted: there is no codec, or the codec lacks the key.

    Nothing was changed. `key_id` identifies the key; no message contains the key itself.
    """

    resumable = True

    def __init__(self, what: str, key_id: str, why: str = "") -> None:
        self.what, self.key_id = what, key_id
        fault = f"{what} is encrypted with key {key_id!r}" + (f": {why}" if why else ", which is missing here")
        super().__init__(f"{fault}; give the executor a codec that has the key: Executor(codec=...)")
        self.typed = f"{fault}; name the key: ORCHESTRATOR_KEYS={shlex.quote(key_id)}=env:VARIABLE"


class EngineUnavailable(OrchestratorError):
    """Raised when an engine that delivers runs cannot be reached. No run is lost: workers find runs that it misses."""

    retryable: ClassVar[bool] = True


class StoreUnavailable(StoreError):
    """Raised when the store is temporarily unusable: disk full, file read-only, locked, removed or replaced."""


class StoreUnsupported(StoreError):
    """Raised when a store's file is on an unsafe file system, such as a network file system."""


class InvalidExport(StoreError):
    """Raised when a file of exported runs cannot be imported. Nothing was imported."""

    def __init__(self, line: int, why: str) -> None:
        self.line = line
        super().__init__(f"line {line} of the export: {why}")


class StoreTooNew(StoreError):
    """Raised when a store was written by a newer version of this library."""
