"""The pictures in docs/pictures: a run of each strategy, all states that nodes can have, and what breaks a claim.

`python -m tests.graphs.pictures` draws them anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio

from orchestrator import Graph, OfflineModel, Run, ToolCall, tool
from orchestrator.models.base import Model, ModelRequest
from orchestrator.models.messages import Reply
from orchestrator.render import draw, to_svg
from orchestrator.render.plans import plan_drawings, steps_of
from orchestrator.render.svg import drawing_to_svg
from orchestrator.strategies import (
    chat,
    code_act,
    evaluator_optimizer,
    function_call,
    function_call_agent,
    llm_compiler,
    orchestrator_workers,
    plan_and_execute,
    plan_and_solve,
    plan_and_solve_prompt,
    react,
    reflexion,
    rewoo,
    router,
    self_ask,
    self_consistency,
    supervisor,
    swarm,
    tool_user,
    tree_of_thoughts,
)
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.render.pictures import everything, untimed
from tests.render.proved import witness
from tests.render.sample import research

PLACE = Path(__file__).parents[2] / "docs" / "pictures"
SUM = "What is 20+(2*4)?"


@tool(risk="read", effect="read")
def get_current_weather(location: str) -> str:
    """Get the current weather in a place."""
    return {"Tokyo": "10", "Paris": "22"}[location]


def weather() -> Model:
    """Both cities are asked for at once."""
    calls = [
        ToolCall(id=f"call_{n}", name="get_current_weather", arguments=given, raw=json.dumps(given))
        for n, given in enumerate([{"location": "Tokyo"}, {"location": "Paris"}])
    ]
    return ScriptedModel([calls, "10 degrees in Tokyo, 22 in Paris."])


class Slip(OfflineModel):
    """A model whose first answer is wrong, and which is right from then on."""

    slipped = False

    async def respond(self, request: ModelRequest) -> Reply:
        reply = await super().respond(request)
        if self.slipped or request.output is not None or reply.tool_calls:
            return reply
        self.slipped = True
        return reply.model_copy(update={"text": "27"})


RUNS: dict[str, tuple[Graph, str, Callable[[], Model]]] = {
    "tool_user": (tool_user.graph, SUM, OfflineModel),
    "function_call": (function_call.graph, "What is the weather in Tokyo and Paris?", weather),
    "function_call_agent": (function_call_agent.graph, "What is the weather in Tokyo and Paris?", weather),
    "react": (react.graph, SUM, OfflineModel),
    "chat": (chat.graph, "What is 2*4?", OfflineModel),
    "plan_and_solve": (plan_and_solve.graph, SUM, OfflineModel),
    "plan_and_solve_prompt": (plan_and_solve_prompt.graph, SUM, OfflineModel),
    "rewoo": (rewoo.graph, "What is (3+4)*(10-2)?", OfflineModel),
    "self_consistency": (self_consistency.graph, SUM, OfflineModel),
    "evaluator_optimizer": (evaluator_optimizer.graph, SUM, Slip),
    "router": (router.graph, SUM, OfflineModel),
    "orchestrator_workers": (orchestrator_workers.graph, SUM, OfflineModel),
    "reflexion": (reflexion.graph, SUM, Slip),
    "plan_and_execute": (plan_and_execute.graph, SUM, OfflineModel),
    "supervisor": (supervisor.graph, SUM, OfflineModel),
    "swarm": (swarm.graph, SUM, OfflineModel),
    "self_ask": (self_ask.graph, SUM, OfflineModel),
    "tree_of_thoughts": (tree_of_thoughts.graph, SUM, OfflineModel),
    "code_act": (code_act.graph, "What is (3+4)*(10-2)?", OfflineModel),
    "llm_compiler": (llm_compiler.graph, "What is (3+4)*(10-2)?", OfflineModel),
}


async def run_of(name: str) -> Run:
    """The run that the picture shows."""
    graph, question, model = RUNS[name]
    tools = [get_current_weather, *tools_from_ref("arithmetic")]
    return await graph.run(question, model=model(), tools=tools, approve="none")


def plan_of(run: Run) -> str:
    """The sheet with the plan that a run made, as a picture of its own."""
    _, plan, drawing, mark = next(plan_drawings(draw(run.definition, run).planned))
    name = f"the plan of a run of {run.definition.name}"
    done = replace(mark, texts={"status": mark.texts["times"]})
    return drawing_to_svg(replace(drawing, name=name, about=f"{name}: {steps_of(plan)}.", status=done))


def states() -> str:
    """A picture with all states."""
    return to_svg(research(), everything())


async def main() -> None:
    """Draw all."""
    for name in RUNS:
        run = await run_of(name)
        (PLACE / f"{name}.svg").write_text(untimed(to_svg(run.definition, run)), encoding="utf-8")
        if name == "react":
            closed = to_svg(run.definition, run, closed=True)
            (PLACE / "react_closed.svg").write_text(untimed(closed), encoding="utf-8")
        if name == "rewoo":
            (PLACE / "rewoo_plan.svg").write_text(plan_of(run), encoding="utf-8")
    (PLACE / "states.svg").write_text(states(), encoding="utf-8")
    (PLACE / "witness.svg").write_text(witness(), encoding="utf-8")


if __name__ == "__main__":
    anyio.run(main)
