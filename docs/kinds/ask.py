from pydantic import BaseModel

from orchestrator import Executor, Graph, Value
from orchestrator.nodes import Ask


class Trip(BaseModel):
    city: str
    days: int = 0


graph = Graph(
    name="trip",
    state=Trip,
    input="city",
    nodes={"ask": Ask(prompt="How many days in {city}?", show=("city",), answer="days")},
    edges="START -> ask -> END",
    output="days",
)


# Run it.
async def main() -> None:
    async with Executor() as executor:
        run = await executor.start(graph, "Paris")
        assert run.waiting[0].prompt == "How many days in Paris?"
        run = await executor.answer(run.run_id, run.waiting[0].id, Value(value=3))
        assert run.output == 3
