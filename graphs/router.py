"""Router: a small model decides which agent a question is for, and that agent answers it.

START -> sort -> simple  : simple  -> END
              -> complex : complex -> END
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, Retry
from orchestrator.nodes import Classify, Complete, Constrain, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.tools import Risk
from orchestrator.values import check_options

SORT = """\
You decide who answers a question. You get the question and those who can answer, each as "name: what it is for". \
Choose the first one that can do it well. Do not answer the question. Answer with one JSON object, \
{"choice": "<name>"}, with the name exactly as it is written, and with nothing else."""


class AskedState(BaseModel):
    """The state of an agent that answers at once."""

    question: str
    answer: str = ""


class RouterState(AskedState):
    """The state from a question to the answer of one of the agents."""

    chosen: str = ""
    """The name of the agent."""


def direct_answer(description: str = "questions that can be answered at once, without tools") -> Graph:
    """Return an agent that answers in one call of a model, without tools."""
    return Graph(
        name="direct_answer",
        description=description,
        state=AskedState,
        input="question",
        nodes={"answer": Complete(result="answer", retry=Retry())},
        edges="START -> answer -> END",
        output="answer",
    )


def agent_node(name: str, agent: Graph, *, question: str = "question", answer: str = "answer") -> Subgraph:
    """Return a node that runs an agent.

    Args:
        name: the node's name, for errors.
        agent: a graph with one input, the question, and one output, the answer.
        question: the outer field with the question.
        answer: the outer field that gets the answer.

    Raises:
        ValueError: the graph has several inputs, or no output.
    """
    if not isinstance(agent, Graph):
        raise ValueError(f"agent {name!r} is {agent!r:.60}: give a Graph, such as react()")
    if not isinstance(agent.input, str) or not isinstance(agent.output, str):
        raise ValueError(f"agent {name!r}, graph {agent.name!r}, needs one input= and one output=: question and answer")
    return Subgraph(agent, inputs={agent.input: question}, outputs={answer: agent.output})


def own_names(strategy: str, given: Mapping[str, object], taken: Collection[str]) -> None:
    """Check that agents have names, and that none has the name of one of the strategy's own nodes.

    Raises:
        ValueError: one has, or they are no mapping.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{strategy}: give the agents with their names, {{name: agent}}, not {given!r:.60}")
    same = sorted(set(given).intersection(taken))
    if same:
        raise ValueError(f"{strategy}: {same[0]!r} is the name of a node of the graph: rename that agent")


@checks_names
def router(
    agents: Mapping[str, Graph] | None = None,
    max_seconds: float | None = None,
    *,
    name: str = "router",
    tools: Collection[object] | None = None,
    model: str | None = None,
    router: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    max_steps: int = 10,
    system: str = SORT,
    constrain: Constrain = "auto",
) -> Graph:
    """Return the strategy as a graph, to run with a question, models and tools. Its output is the agent's answer.

    Args:
        agents: name -> an agent: a graph with one input and one output, whose description says what it is for. None:
            `simple`, which answers in one call, and `complex`, a `function_call_agent`. They can also be replaced
            later: `graph.replace(simple=...)`.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools for the default agents: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models, for the default agents; None for the default one.
        router: name of the model that decides, which may be a small one; None for that of `model`.
        confirm: the default agent asks before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens in the default agent if a call is denied: the run fails, or the model gets the reason.
        on_error: what happens in the default agent if a call cannot be made: the run fails, or the model gets the
            reason.
        max_steps: rounds of calls of the default agent.
        system: the system message of the decision.
        constrain: `auto`: ask for the decision by a JSON Schema, which many servers enforce. `never`: only in words.

    Raises:
        ValueError: there are fewer than two agents, one has no description or the name of another node, or an option
            does not fit.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain}
    check_options("router", max_steps=max_steps, seconds=max_seconds, **given)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("router: max_steps must be at least 1, and max_seconds more than 0")
    if agents is None:
        options: dict[str, Any] = {"confirm": confirm, "on_denied": on_denied, "on_error": on_error}
        worker = function_call_agent(max_steps, last_answer=True, **options)
        worker = worker.model_copy(update={"description": "tasks that take several steps, or tools"})
        agents = {
            "simple": direct_answer().with_model(model),
            "complex": worker.with_tools(tools).with_model(model),
        }
    own_names("router", agents, ["sort"])
    workers = {one: agent_node(one, agent) for one, agent in agents.items()}
    undescribed = next((one for one, agent in agents.items() if not agent.description), None)
    if undescribed is not None:
        raise ValueError(f"router: agent {undescribed!r} has no description=, which says what it is for")
    edges = [f"    sort -> {one} : {one}\n    {one} -> END" for one in agents]
    return Graph(
        name=name,
        description="Decide which agent a question is for, and let it answer.",
        state=RouterState,
        input="question",
        nodes={
            "sort": Classify(
                choices={one: agent.description for one, agent in agents.items()},
                system=system,
                result="chosen",
                constrain=constrain,
                model=router or model,
                retry=Retry(),
            ),
            **workers,
        },
        edges="\n".join(["    START -> sort", *edges]),
        output="answer",
        limits=Limits(steps=None, seconds=max_seconds),
    )


graph = router()
