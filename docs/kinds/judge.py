from orchestrator import Graph
from orchestrator.nodes import Complete, Judge
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="judged",
    state=Judge.State,
    input="question",
    nodes={
        "write": Complete(result="answer"),
        "judge": Judge(rubric={"correct": "every fact is right", "brief": "one sentence"}, threshold=4),
    },
    edges="""
        START -> write -> judge
        judge -> END   : accepted
        judge -> write : rejected
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    replies = {
        "write": ["It is big. Very big.", "It is 8,849 m high."],
        "judge": [
            '{"feedback": "Say how high it is.", "scores": {"correct": 3, "brief": 2}}',
            '{"feedback": "", "scores": {"correct": 5, "brief": 5}}',
        ],
    }
    run = await graph.run("How high is Mount Everest?", model=ScriptedModel(replies))
    assert (run.output, run.values["score"]) == ("It is 8,849 m high.", 5.0)
