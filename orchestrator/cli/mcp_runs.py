"""The runs that MCP clients start with `serve-mcp`: how they are driven, and what the clients receive."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import anyio

from orchestrator.cli import mcp_resources, report
from orchestrator.cli.mcp_questions import Form, can_ask, form_of, name_of_client
from orchestrator.cli.output import redacted, warn
from orchestrator.errors import (
    InvalidAnswer,
    ModelError,
    OrchestratorError,
    QuestionUnknown,
    RunConflict,
    RunUnknown,
    StaleAnswer,
)
from orchestrator.executor.calls.graph_tool import GraphTool
from orchestrator.kernel.status import RunStatus
from orchestrator.render.terminal import texts
from orchestrator.tools.mcp.untrusted import names_of
from orchestrator.tools.validation import faults

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.types import CallToolResult, InputRequiredResult

    from orchestrator.executor import Executor, Run
    from orchestrator.graph_class import Graph


LABEL = ("via", "mcp")
"""The label of runs that clients started. Other runs of the store are hidden from them."""
TASK = ("mcp", "task")
"""The label of runs that go on without their clients."""
RESULT_TOOL = "run_result"
_REFUSALS = 5
"""Times that the user of a client may fill in forms of a run wrongly, before the call ends with the questions open."""
OUTPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "The run's id."},
        "status": {"enum": [*get_args(RunStatus)], "description": "A paused run waits for a person."},
        "output": {"description": "The graph's output; null while there is none."},
        "page": {"type": "string", "description": "The resource with the run as a page."},
        "waiting": {
            "type": "array",
            "description": "The questions of a paused run, each with the command by which a person answers it.",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("kind", "prompt", "command")},
                "required": ["kind", "prompt", "command"],
            },
        },
    },
    "required": ["run_id", "status", "output"],
}
"""The schema of the structured content of all results except errors; a graph's tool declares its output."""

Refs: TypeAlias = Callable[[str, str], Mapping[str, object]]
"""Returns references, as text for the command line, to continue the run with this id and graph name."""


class ClientRuns:
    """The runs of the graphs that a server offers.

    The questions of a run are forms that the client shows to its user, if it can. A client that cannot gets the command
    with which a person continues the run. No tool answers a question, because a model controls the tools.

    Args:
        executor: runs the graphs; already open.
        graphs: the offered graphs.
        next_commands: writes the commands that continue a run.
        approve: highest risk of tool calls that are approved without asking, like `--approve`.
        refs: see `Refs`.
        asks: whether questions are asked through the client.
    """

    def __init__(
        self,
        executor: Executor,
        graphs: Sequence[Graph],
        *,
        next_commands: report.NextCommands,
        approve: str | None,
        refs: Refs,
        asks: bool,
    ) -> None:
        self.executor = executor
        self._continue, self._approve, self._refs, self._asks = next_commands, approve, refs, asks
        called = names_of([graph.name for graph in graphs])
        self.tools: Mapping[str, GraphTool] = {
            called[graph.name]: GraphTool(graph, called[graph.name], _description(graph)) for graph in graphs
        }
        self.outputs = {name: _output_of(tool) for name, tool in self.tools.items()}
        """The output schema of each tool."""
        self._stopped: dict[str, str] = {}
        """Why the drive of an interrupted run stopped, until the client has received it."""

    async def recover(self) -> None:
        """Continue the runs that go on without their clients, and that an earlier process of the server left."""
        async with anyio.create_task_group() as tasks:
            cursor: str | None = None
            while True:
                page = await self.executor.runs(
                    status=("running", "interrupted"), labels=dict([LABEL, TASK]), after=cursor
                )
                for info in page.runs:
                    if any(tool.graph.name == info.graph for tool in self.tools.values()):
                        tasks.start_soon(self._recover, info.run_id)
                cursor = page.cursor
                if cursor is None:
                    break

    async def _recover(self, run_id: str) -> None:
        try:
            run = await self.executor.wait(run_id)  # until no other process drives it
            if run.status == "interrupted":
                warn(f"{run_id} goes on")
                await self.executor.resume(run_id, background=True)
        except RunConflict:
            pass  # another process continues it
        except OrchestratorError as error:
            warn(f"{run_id} cannot go on: {redacted(str(error))}")

    async def submit(self, tool: GraphTool, args: Mapping[str, object]) -> str:
        """Start a run that goes on without its client, also after a restart of the server. Returns its id."""
        run_id = secrets.token_hex(8)
        warn(f"{run_id} started: {tool.graph.name}")
        return await self.executor.submit(
            tool.graph,
            dict(args) or None,
            run_id=run_id,
            labels=dict([LABEL, TASK]),
            approve=self._approve,
            refs=self._refs(run_id, tool.graph.name),
        )

    async def streamed(
        self,
        ctx: ServerRequestContext[Any],
        run_id: str,
        tool: GraphTool | None = None,
        args: Mapping[str, object] = {},
    ) -> Run:
        """Start a run with a tool, or continue one, until it ends or pauses.

        A client that cancels its call, or goes away, interrupts the run.
        """
        ended = "was interrupted: " + self._continue.resume(run_id)
        stream = (
            self.executor.stream(run_id=run_id)
            if tool is None
            else self.executor.stream(
                tool.graph,
                dict(args) or None,
                run_id=run_id,
                labels=dict([LABEL]),
                approve=self._approve,
                refs=self._refs(run_id, tool.graph.name),
            )
        )
        try:
            async with stream as live:
                await self._report(ctx, live)
            run = live.run
            assert run is not None
            ended = run.status
            return run
        except ModelError as error:
            self._stopped[run_id] = str(error)
            return await self.executor.load(run_id)
        finally:
            warn(f"{run_id} {ended}")

    async def _report(self, ctx: ServerRequestContext[Any], events: Any) -> None:
        done = 0
        async for event in events:
            if event.type == "step_done":
                done += 1
                await ctx.session.report_progress(done, message=str(event.data.get("node", "")))

    async def awaited(self, ctx: ServerRequestContext[Any], run_id: str, seconds: float | None) -> Run:
        """Return a run when it ends or pauses, or after `seconds`. It goes on if the client cancels its call."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report, ctx, self.executor.events(run_id, follow=True, until="pause"))
            with suppress(TimeoutError):
                await self.executor.wait(run_id, seconds)
            tasks.cancel_scope.cancel()
        return await self.executor.load(run_id)

    async def settled(
        self, ctx: ServerRequestContext[Any], run: Run, seconds: float | None, refused: Mapping[str, str] = {}
    ) -> CallToolResult | InputRequiredResult:
        """Return the result of a call, or what the client is to ask its user first.

        A client of the older protocol is asked here, and the run is continued.

        Args:
            ctx: the call.
            run: its run.
            seconds: how long to wait for a run that goes on without its client; None: no limit.
            refused: why earlier answers were refused, by the key of their form.
        """
        from mcp.types import InputRequiredResult
        from mcp.types.version import MODERN_PROTOCOL_VERSIONS

        left = _REFUSALS
        while (forms := self.forms(ctx, run)) and left:
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                requests: dict[str, Any] = {key: form.request(refused.get(key, "")) for key, form in forms.items()}
                return InputRequiredResult(input_requests=requests, request_state=run.run_id)
            answers = await _elicited(ctx, forms, refused)
            refused = await self.answer(ctx, forms, run.run_id, answers)
            if not answers:
                break
            left -= bool(refused)
            run = await self.continued(ctx, run, seconds)
        return self.result_of(run)

    def forms(self, ctx: ServerRequestContext[Any], run: Run) -> dict[str, Form]:
        """Return the open questions of a run that the user of this client can answer, by the keys of their forms."""
        if not self._asks or not can_ask(ctx) or run.status != "paused":
            return {}
        found = (form_of(question) for question in run.waiting)
        return {form.key: form for form in found if form is not None}

    async def answer(
        self, ctx: ServerRequestContext[Any], forms: Mapping[str, Form], run_id: str, answers: Mapping[str, Any]
    ) -> dict[str, str]:
        """Record the answers to forms. Returns why answers were refused, by the key of their form."""
        refused: dict[str, str] = {}
        for key, form in forms.items():
            if key not in answers:
                continue
            try:
                answer = form.answer(getattr(answers[key], "action", ""), getattr(answers[key], "content", None))
                if answer is not None:
                    question, by = form.question, name_of_client(ctx)
                    await self.executor.answer(run_id, question.id, answer, by=by, digest=question.digest, resume=False)
            except (StaleAnswer, QuestionUnknown):
                pass  # it was answered elsewhere, or has changed: then it is asked again
            except (InvalidAnswer, ValueError) as error:
                refused[key] = str(error)
        return refused

    async def continued(self, ctx: ServerRequestContext[Any], run: Run, seconds: float | None) -> Run:
        """Continue a run that was answered, until it ends or pauses, or for `seconds` if it needs no client."""
        try:
            if run.labels.get(TASK[0]) != TASK[1]:
                return await self.streamed(ctx, run.run_id)
            await self.executor.resume(run.run_id, background=True)
        except RunConflict:
            pass  # the process that drives it reads the answers from the store
        return await self.awaited(ctx, run.run_id, seconds)

    async def known(self, run_id: object) -> Run:
        """Return a run that a client started.

        Raises:
            RunUnknown: there is none with this id.
        """
        if not isinstance(run_id, str):
            raise RunUnknown(str(run_id))
        run = await self.executor.load(run_id)
        if run.labels.get(LABEL[0]) != LABEL[1]:
            raise RunUnknown(run_id)
        return run

    def result_of(self, run: Run) -> CallToolResult:
        """Return the description of a run for a client and its model."""
        from mcp.types import CallToolResult, TextContent

        document: dict[str, object] = {
            "run_id": run.run_id,
            "status": run.status,
            "output": self._checked(run),
            "page": mcp_resources.page_of(run.run_id),
        }
        if run.status == "paused":
            document["waiting"] = self._waiting(run)
        return CallToolResult(
            content=[TextContent(type="text", text=self.text_of(run))],
            structured_content=document,
            is_error=run.status in ("failed", "cancelled", "interrupted"),
        )

    def text_of(self, run: Run) -> str:
        """Return what a run came to, as text."""
        output = texts.plain(run.output) if run.output is not None else ""
        if run.status == "completed":
            return output
        if run.status == "paused":
            return self._paused(run)
        why = str(redacted(self._stopped.pop(run.run_id, "") or str(run.error or "")))
        text = f"Run {run.run_id} is {run.status}{': ' if why else ''}{why}"
        if run.status == "running":
            return f"{text}\nIt goes on. Call {RESULT_TOOL} with run_id {run.run_id!r} for its result."
        if run.status == "interrupted":
            return f"{text}\nA person can continue it:\n  {self._continue.resume(run.run_id)}"
        return f"{text}\nIts output so far:\n{output}" if output else text

    def _checked(self, run: Run) -> object:
        """Return the output of a completed run, unless it does not fit the schema that its tool declares."""
        if run.status != "completed":
            return None
        for name, tool in self.tools.items():
            if tool.graph.name == run.graph:
                schema = self.outputs[name]
                fits = not faults(run.output, schema["properties"]["output"], schema)
                return run.output if fits else None
        return run.output

    def _waiting(self, run: Run) -> list[dict[str, object]]:
        return [
            {"kind": one.kind, "prompt": one.prompt, "command": "\n".join(self._continue.answers(run.run_id, one))}
            for one in run.waiting
        ]

    def _paused(self, run: Run) -> str:
        asked = report.waiting_text(run.run_id, run.waiting, self._continue)
        return (
            f"Not done: {asked}\n"
            "Only a person may decide this. Show them the question and the command to run in a terminal; do "
            f"not run it yourself. When they have, call {RESULT_TOOL} with run_id {run.run_id!r}."
        )


def _description(graph: Graph) -> str:
    return graph.description or f"Runs the agent graph {graph.name!r} and returns its answer."


def _output_of(tool: GraphTool) -> dict[str, Any]:
    """Return the output schema of a tool, with the schema of the graph's output."""
    found = dict(tool.output_schema or {})
    definitions = found.pop("$defs", None)
    about = {"description": "The graph's output; null unless the run is completed."}
    output = {"anyOf": [found, {"type": "null"}], **about} if found else about
    made = {**OUTPUT, "properties": {**OUTPUT["properties"], "output": output}}
    return {**made, "$defs": definitions} if definitions else made


async def _elicited(
    ctx: ServerRequestContext[Any], forms: Mapping[str, Form], refused: Mapping[str, str]
) -> dict[str, Any]:
    """Show the forms to the user, one after the other. Returns what they did with each, up to one that they closed."""
    from mcp.shared.exceptions import MCPError

    found: dict[str, Any] = {}
    for key, form in forms.items():
        try:
            said = await ctx.session.elicit_form(form.message(refused.get(key, "")), form.schema(), ctx.request_id)
        except MCPError as error:
            warn(f"the client cannot ask its user: {redacted(str(error))}")
            break
        if said.action == "cancel":
            break
        found[key] = said
    return found
