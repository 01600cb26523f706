"""Supervisor: a lead decides which agent works next and on what, sees its report, and decides again; then it answers.

START -> lead -> read -> END                          : answer
         ^ again |    -> hand_over -> assign -> worker : worker -> report
         +-------+                           -> writer : writer -> report
         +------------------------------------------------------------+
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, Outcome, Retry, ToolCall, Update, extend, handoff, node
from orchestrator.graph import Migration, Node
from orchestrator.models import user
from orchestrator.nodes import CallModel, CallProtocol, Compact, Execute, ReadReply
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy, shortening
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.router import agent_node, direct_answer, own_names
from orchestrator.tools import Risk
from orchestrator.values import check_options

LEAD = """\
You lead a team of agents and answer the user's question with their help. Hand the work over to one agent at a time: \
in the message, say what it has to do, and all that it has to know, because it sees nothing else. You will get its \
report. When the reports are enough, answer the question, without handing over."""


class SupervisorState(CallModel.State, ReadReply.State, BaseModel):
    """Inherits `question`, `messages` (of the lead), `reply`, `corrections`, `pending` and `answer`."""

    task: str = ""
    """What the agent has to do."""
    result: str = ""
    """The agent's answer."""


class LongSupervisorState(SupervisorState, Compact.State):
    """Inherits also `context_usage`, the size of the conversation."""


@node(effect="pure")
def brief(state: SupervisorState) -> Update:
    """Write the task of the agent: the message of the lead's first call, else the question.

    For graph files of the first release, which have it before `hand_over`, where no call has been made yet.
    """
    return {"task": _task(state.pending[:1], state.question)}


@node(effect="pure", outcomes=("worker", "writer"))
def assign(state: SupervisorState) -> Outcome[str]:
    """Write the task of the agent that the work was handed over to: the call's message, else the question."""
    results = state.messages[-len(state.pending) :]  # of `hand_over`, one for each call
    call = next(
        call
        for call, result in zip(state.pending, results, strict=False)
        if result.role == "tool" and (result.data or {}).get("error") is None
    )
    return Outcome(_agent(call), {"task": _task([call], state.question), "pending": [call]})


def _task(calls: Sequence[ToolCall], question: str) -> str:
    message = next(((call.arguments or {}).get("message") for call in calls), None)
    return str(message or "").strip() or question


def _agent(call: ToolCall) -> str:
    return call.name.removeprefix("transfer_to_")


@node(effect="pure")
def report(state: SupervisorState) -> Update:
    """Tell the lead what the agent found."""
    who = next(map(_agent, state.pending), "the agent")
    facts = {"question": state.question, "task": state.task, "report": state.result}
    return {"messages": extend([user(f"Report of {who}:\n{state.result or 'nothing'}", data=facts)])}


EDGES = """
    START     -> {entry}
    lead      -> read
    read      -> lead   : again
    read      -> END    : answer
    read      -> hand_over : calls
    hand_over -> {entry}
    report    -> {entry}
"""


def _check_agents(agents: Mapping[str, Graph]) -> None:
    if not agents:
        raise ValueError("supervisor: no agents")
    for name, agent in agents.items():
        if not agent.description:
            raise ValueError(f"supervisor: agent {name!r} has no description=")


def _default_agents(worker: Graph, model: str | None) -> dict[str, Graph]:
    worker = worker.model_copy(update={"description": "Finds facts and calculates, with tools."})
    writer = direct_answer("Writes and improves texts, without tools.")
    return {"worker": worker.with_model(model), "writer": writer.with_model(model)}


@checks_names
def supervisor(
    agents: Mapping[str, Graph] | None = None,
    max_seconds: float | None = None,
    *,
    name: str = "supervisor",
    tools: Collection[object] | None = None,
    model: str | None = None,
    lead: str | None = None,
    system: str = LEAD,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    max_steps: int = 10,
    max_rounds: int = 10,
    protocol: CallProtocol = "native",
    context: ContextPolicy = "compact",
) -> Graph:
    """Return the strategy as a graph, to run with a question, models and tools. Its output is the lead's answer.

    After `max_steps` decisions of the lead the run ends as `exhausted`.

    Args:
        agents: name -> an agent: a graph with one input and one output, whose description says what it is for. None:
            `worker`, a `function_call_agent`, and `writer`, a model without tools.
        max_seconds: seconds that the run may be alive, in all agents together; None for no limit.
        name: the graph's name.
        tools: the only tools for the default agents: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models, for the lead and the default agents; None for the default one.
        lead: name of the lead's model; None for that of `model`.
        system: the system message of the lead.
        confirm: the default agent asks before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens in the default agent if a call is denied: the run fails, or the model gets the reason.
        on_error: what happens in the default agent if a call cannot be made: the run fails, or the model gets the
            reason.
        max_steps: the most decisions of the lead, with the answer.
        max_rounds: rounds of calls of the default agent for one task, after which it answers from what it has.
        protocol: the form of the lead's handovers: the provider's own calls, or a form of text.
        context: what keeps the lead's conversation within its model's window, see `function_call_agent`.

    Raises:
        ValueError: there is no agent, one has no description or the name of another node, or an option does not fit.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "context": context}
    check_options("supervisor", max_steps=max_steps, max_rounds=max_rounds, seconds=max_seconds, **given)
    if max_steps < 1 or max_rounds < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("supervisor: max_steps and max_rounds must be at least 1, and max_seconds more than 0")
    if agents is None:
        worker = function_call_agent(
            max_rounds, last_answer=True, confirm=confirm, on_denied=on_denied, on_error=on_error
        )
        agents = _default_agents(worker.with_tools(tools), model)
    own_names("supervisor", agents, ["lead", "read", "hand_over", "assign", "report", "compact", "clear", "brief"])
    nodes: dict[str, Node] = {
        one: agent_node(one, agent, question="task", answer="result") for one, agent in agents.items()
    }
    _check_agents(agents)
    transfers = tuple(handoff(one, agent.description) for one, agent in agents.items())
    shorten, when_long = shortening(context, "lead")
    usage = "context_usage" if shorten else None
    ways = [f"    hand_over -> assign : {one}\n    assign -> {one} : {one}\n    {one} -> report\n" for one in agents]
    return Graph(
        name=name,
        description="Decide which agent works next and on what, see its report, and decide again.",
        state=LongSupervisorState if shorten else SupervisorState,
        input="question",
        nodes={
            "lead": CallModel(
                system=system,
                question="question",
                protocol=protocol,
                parallel_tool_calls=False,
                tools=transfers,
                usage=usage,
                model=lead or model,
                retry=Retry(),
            ),
            "read": ReadReply(protocol=protocol, usage=usage),
            "hand_over": Execute(
                calls="pending", results="messages", chosen=tuple(agents), on_failure="observe", tools=transfers
            ),
            "assign": assign.with_(declared=tuple(agents)),
            **nodes,
            "report": report,
            **{one: node_.with_(model=lead or model) for one, node_ in shorten.items()},
        },
        edges=EDGES.format(entry=next(iter(shorten), "lead")) + "".join(ways) + when_long,
        output="answer",
        limits=Limits(steps=100_000 * max_steps, visits={"lead": max_steps}, seconds=max_seconds),
        migrations=[Migration(nodes={"brief": "hand_over"}, accept=True)],  # of the first release's graph
    )


graph = supervisor()
