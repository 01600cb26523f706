from orchestrator import Graph
from orchestrator.nodes import Plan, ReadPlan
from orchestrator.testing import ScriptedModel


class State(Plan.State, ReadPlan.State):
    pass


graph = Graph(
    name="read_plan",
    state=State,
    input="question",
    nodes={"plan": Plan(drafts="drafts", faults="faults"), "read_plan": ReadPlan()},
    edges="""
        START -> plan -> read_plan -> END
        read_plan -> plan : again
    """,
    output="steps",
)


# Run it.
async def main() -> None:
    model = ScriptedModel(["", "Plan:\n1. Mix.\n2. Bake.\n<END_OF_PLAN>"])  # the empty plan goes back to the model
    run = await graph.run("Bake a cake.", model=model)
    assert run.output == ["Mix.", "Bake."]
