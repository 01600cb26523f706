"""Research: a question becomes several, an agent for each searches a small library, and a budget ends in a report.

orchestrator run research.py:research "How tall is the Millau Viaduct, and why did the Tacoma Narrows Bridge fall?" \\
    --model research.py:model
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from orchestrator import Context, Graph, Limits, Reply, Retry, ToolCall, Update, append, node, tool
from orchestrator.graph import Usage
from orchestrator.models import ModelRequest
from orchestrator.nodes import ITEM, Complete, Subgraph
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.testing import ScriptedModel

CORPUS = Path(__file__).parent / "corpus"


def words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}


@tool(risk="read", effect="read")
def search(text: str) -> str:
    """Search the library for words. Returns the three best passages with their files.

    Args:
        text: the words to look for.
    """
    asked = words(text)
    passages = [
        f"{file.name}: {' '.join(passage.split())}"
        for file in sorted(CORPUS.glob("*.txt"))
        for passage in file.read_text(encoding="utf-8").split("\n\n")
    ]
    best = sorted(passages, key=lambda passage: -len(asked & words(passage)))[:3]
    return "\n".join(passage for passage in best if asked & words(passage)) or "nothing found"


class Plan(BaseModel):
    """The parts of a question."""

    questions: Annotated[list[str], Field(min_length=1, max_length=5)]


class Research(BaseModel):
    question: str
    plan: Plan | None = None
    questions: list[str] = []
    asked: Annotated[list[str], append] = []
    """The questions that have an answer, in the order of `found`."""
    found: Annotated[list[str], append] = []
    report: str = ""


@node(tools=[], effect="pure")
def split(state: Research) -> Update:
    """Take the questions out of the plan, for the map."""
    return {"questions": state.plan.questions if state.plan else [state.question]}


@node(tools=[], effect="pure")
def stop(state: Research, ctx: Context) -> Update:
    """Report what there is when the budget is spent, without another call."""
    answers = [f"- {asked}\n  {found}" for asked, found in zip(state.asked, state.found, strict=True)]
    left = [f"- {question}" for question in state.questions if question not in state.asked]
    why = ctx.error.message if ctx.error else "an agent failed"
    return {"report": "\n".join([f"Incomplete: {why}", *answers, "Not answered:", *(left or ["- nothing"])])}


def research(calls: int = 60, tokens: int | None = None) -> Graph:
    """Build the graph.

    Args:
        calls: the most calls of models and tools in a run.
        tokens: the most tokens in a run; None: no limit.
    """
    agent = function_call_agent(
        max_steps=8,
        name="agent",
        tools=[search],
        context="compact",
        last_answer=True,
        system="Answer the question from the library. Search before you answer, and name the file.",
    )
    return Graph(
        name="research",
        state=Research,
        input="question",
        nodes={
            "plan": Complete(
                prompt="Split this question into its parts, each a question of its own:\n{question}",
                output=Plan,
                result="plan",
                retry=Retry(),
            ),
            "split": split,
            "agent": Subgraph(
                agent, inputs={"question": ITEM}, outputs={"asked": "question", "found": "answer"}, pool="agents"
            ),
            "write": Complete(
                prompt="Question: {question}\nFindings: {found}\nWrite a report of at most five sentences.",
                result="report",
                join="all",
                retry=Retry(),
            ),
            "stop": stop,
        },
        edges="""
            START -> plan -> split
            split -> agent : each questions
            agent -> write -> END
            * -> stop : exhausted
            stop -> END
        """,
        output="report",
        limits=Limits(steps=1_000, calls=calls, tokens=tokens),
        pools={"agents": 2},  # two questions at a time, so that the first ones have answers when the budget is spent
    )


graph = research()


class Rules(ScriptedModel):
    """Stands for a model with a small window, so that this runs without a key and conversations need summaries."""

    window = 300

    async def respond(self, request: ModelRequest) -> Reply:
        reply = await super().respond(request)
        read = sum(len(message.content) for message in request.messages)
        return reply.model_copy(update={"usage": Usage(input_tokens=read // 4, output_tokens=len(reply.text) // 4)})


def passages_in(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\w+\.txt: [^\n]*", text)))


def plan_by_rule(request: ModelRequest) -> str:
    parts = re.split(r",? and |, ", request.messages[-1].content.partition("\n")[2].rstrip("?"))
    return json.dumps({"questions": [f"{part[0].upper()}{part[1:]}?" for part in parts]})


def search_by_rule(request: ModelRequest) -> str | Sequence[ToolCall]:
    """Search three times, with other words each time, then answer with the passages of the file that fits best."""
    question = next(message.content for message in request.messages if message.role == "user")
    seen = "\n".join(message.content for message in request.messages)
    done = sum(message.role == "tool" for message in request.messages) + seen.count("Searches: ") * 2
    if done < 3:
        text = [question, *sorted(words(question), key=len)][-done]
        return [ToolCall(id=f"search-{done}", name="search", arguments={"text": text})]
    files = {passage.partition(":")[0]: "" for passage in passages_in(seen)}
    for passage in passages_in(seen):
        files[passage.partition(":")[0]] += passage.partition(":")[2]
    best = max(files, key=lambda file: len(words(question) & words(files[file])))
    return f"{best}:{files[best]}"


def summarise_by_rule(request: ModelRequest) -> str:
    return "\n".join(["Searches: ", *passages_in(request.messages[-1].content)])


def write_by_rule(request: ModelRequest) -> str:
    return "\n".join(passages_in(re.sub('", "|"]', "\n", request.messages[-1].content)))


model = Rules({"plan": plan_by_rule, "think": search_by_rule, "compact": summarise_by_rule, "write": write_by_rule})
