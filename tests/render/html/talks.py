"""Runs of agents with tools, and of a node with guards."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Update, node, tool
from orchestrator.executor import Run
from orchestrator.graph.limits import Usage
from orchestrator.models.messages import Message, Reply, ToolCall, tool_result, user
from orchestrator.nodes import ClearResults, Compact, ContextUsage, Route
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel

FOUND = "Oslo: 4 degrees and light rain, wind from the south-west."


@tool(risk="read", effect="read")
def search_web(query: str) -> str:
    """Search the web."""
    return FOUND


@tool(risk="write", effect="irreversible")
def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    return f"accepted by the server of {to}"


def _calls(name: str, **args: str) -> Reply:
    call = ToolCall(id=f"call-{name}", name=name, arguments=dict(args))
    return Reply(text="Let me see.", tool_calls=(call,), usage=Usage(input_tokens=412, output_tokens=57))


async def run_weather(url: str) -> Run:
    """An agent searches, asks before it sends a mail, and answers at length."""
    mail = _calls("send_mail", to="ann@example.com", body="It rains.\nTake an umbrella.")
    model = ScriptedModel([_calls("search_web", query="weather Oslo"), mail, "It rains in Oslo. " * 60])
    made = react()
    async with Executor(store=url, graphs=[made], model=model, tools=[search_web, send_mail]) as ex:
        run = await ex.start(made, "What is the weather like in Oslo?", run_id="weather", limits=Limits(tokens=90_000))
        return await ex.answer(run.run_id, run.waiting[0].id, Approve(), by="ann")


def long_talk(rounds: int) -> list[Message]:
    """A question, and rounds of one call with a long result."""
    talk = [user("What do the files say?")]
    for number in range(rounds):
        call = ToolCall(id=f"c{number}", name="read_file", arguments={"path": f"{number}.txt"})
        talk += [Message(role="assistant", tool_calls=(call,)), tool_result(call, f"{number}: {'lorem ipsum ' * 100}")]
    return talk


async def run_shortened(url: str) -> Run:
    """A long conversation: old results are cleared, then a summary replaces the older rounds."""
    talk = long_talk(12)
    usage = ContextUsage(window=4_000, tokens=3_900, messages=len(talk))
    made = Graph(
        name="shortened",
        state=Compact.State,
        input=("messages", "context_usage"),
        nodes={
            "clear": ClearResults(usage="context_usage", at=0.5, over=200),
            "compact": Compact(usage="context_usage", at=0.3),
        },
        edges="START -> clear\nclear -> compact : done\nclear -> compact : cleared\ncompact -> END",
    )
    spent = Usage(input_tokens=900, output_tokens=20, cached_tokens=600, cost=0.01, cache_savings=0.004)
    model = ScriptedModel([Reply(text="All files say <b>lorem</b>.", usage=spent)])
    async with Executor(store=url, graphs=[made], model=model) as ex:
        return await ex.start(made, {"messages": talk, "context_usage": usage}, run_id="shortened")


class Dialogue(BaseModel):
    left: int = 0
    said: str = ""


@node
async def say(state: Dialogue, ctx: Context) -> Update:
    return {"said": (await ctx.model.complete(f"{state.left} more")).text, "left": state.left - 1}


async def run_dialogue(url: str, turns: int) -> Run:
    """So many turns, each with a prompt of its own."""
    made = Graph(
        name="dialogue",
        state=Dialogue,
        input="left",
        nodes={"say": say, "more": Route(cases={"yes": "left > 0"}, default="no")},
        edges="START -> say -> more\nmore -> say : yes\nmore -> END : no",
        limits=Limits(steps=2 * turns + 1),
    )
    async with Executor(store=url, graphs=[made], model=ScriptedModel(lambda _: "fine")) as ex:
        return await ex.start(made, turns, run_id="dialogue")


class Mail(BaseModel):
    score: float = 0
    seen: int = 0


@node(effect="pure")
def look(state: Mail) -> Update:
    return {"seen": state.seen + 1, "score": state.score + 0.4}


async def run_guarded(url: str) -> Run:
    """A loop that guards end."""
    made = Graph(
        name="guarded",
        state=Mail,
        nodes={"look": look, "decide": Route(cases={"good": "score > 0.7"}, default="more")},
        edges="START -> look -> decide\ndecide -> END : good\ndecide -> look : more",
    )
    async with Executor(store=url, graphs=[made]) as ex:
        return await ex.start(made, {}, run_id="guarded")
