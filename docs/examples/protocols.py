"""One agent for several protocols: a chat that sends mails after approval. Its model answers by rules, without a key.

uvicorn protocols:app --port 8000
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from orchestrator import Executor, ToolCall, tool
from orchestrator.models.base import ModelRequest
from orchestrator.protocols import a2a_app, agui_app, ui_app
from orchestrator.strategies.chat import chat
from orchestrator.testing import ScriptedModel
from orchestrator.testing.scripted import Said


@tool(risk="write", effect="irreversible")
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}: {text}"


def reply(request: ModelRequest) -> Said:
    """Send what the user writes to the name that comes first; tell what came of it."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"Done: {last.content}"
    name, _, text = last.content.partition(" ")
    return [ToolCall(id=f"mail-{len(request.messages)}", name="send_mail", arguments={"to": name, "text": text})]


graph = chat(tools=[send_mail], name="mail")
executor = Executor("sqlite:///mails.db", graphs=[graph], model=ScriptedModel(reply), streams="always")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with executor:
        await executor.recover()
        yield


routes = [
    Mount("/agui", agui_app(executor, graph, state=["rounds"])),
    Mount("/chat", ui_app(executor, graph)),
    Mount("/a2a", a2a_app(executor, graph, url="http://127.0.0.1:8000/a2a/")),
]
app = Starlette(routes=routes, lifespan=lifespan)
