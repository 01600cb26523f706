"""An agent fills in a form on a web page, and a person approves what it sends.

It runs without a key: the page is served on this machine, and the model answers by rules. You need Chromium and
`pip install ".[browser]"`. Then run `python docs/examples/browser/form_filling.py`, look at the
picture in `form_filling.html`, and answer.
"""

import argparse
import http.server
import re
import threading
from typing import Any

import anyio

from orchestrator import Approve, Deny, Executor, ToolCall
from orchestrator.models.base import ModelRequest
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.testing import ScriptedModel
from orchestrator.tools.builtin.browser import Browser

PAGE = b"""<!doctype html><title>Tea shop</title>
<style>body { font: 18px sans-serif; margin: 3em } label { display: block; margin: 1em 0 }</style>
<h1>Order tea</h1>
<form action="/ordered">
  <label>Name <input name="name"></label>
  <label>Tea <select name="tea"><option>green<option>black</select></label>
  <button>Order</button>
</form>"""
THANKS = b"<!doctype html><title>Tea shop</title><h1>Thank you, your tea is on its way.</h1>"


class Shop(http.server.BaseHTTPRequestHandler):
    """The shop: a form, and what comes after it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(THANKS if self.path.startswith("/ordered") else PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not print requests."""


def element(request: ModelRequest, name: str) -> dict[str, str]:
    """The number of an element in the last text of the page."""
    page = next(m.content for m in reversed(request.messages) if m.role == "tool" and name in m.content)
    found = re.search(re.escape(name) + r".*?\[ref=(\w+)\]", page)
    assert found is not None
    return {"ref": found[1], "element": name}


def rules(address: str) -> Any:
    """What a model would decide: one call after the other, then an answer."""

    def decide(request: ModelRequest) -> Any:
        step = sum(message.role == "tool" for message in request.messages)
        if step == 0:
            return [ToolCall(id="0", name="browser_goto", arguments={"url": address})]
        if step == 1:
            return [
                ToolCall(id="1", name="browser_fill", arguments={**element(request, 'textbox "Name"'), "text": "Ann"})
            ]
        if step == 2:
            options = {**element(request, 'combobox "Tea"'), "options": ["black"]}
            return [ToolCall(id="2", name="browser_select", arguments=options)]
        if step == 3:
            return [ToolCall(id="3", name="browser_screenshot", arguments={})]
        if step == 4:
            return [ToolCall(id="4", name="browser_click", arguments=element(request, 'button "Order"'))]
        return f"Done: {request.messages[-1].content.splitlines()[-1].strip('| -')}"

    return decide


async def main(answer: str | None, page: str) -> None:
    """Run the agent, ask before each call that changes something, and write the page of the run."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    browser = Browser(hosts=["127.0.0.1"], allow_private=["127.0.0.1/32"], ports=None)
    model = ScriptedModel(rules(address), name="rules")
    agent = function_call_agent(max_steps=8)
    async with Executor(model=model, tools=browser, graphs=[agent]) as executor:
        run = await executor.start(agent, f"Order black tea for Ann at {address}")
        while run.waiting:
            question = run.waiting[0]
            await anyio.Path(page).write_text(run.to_html())
            print(question.payload["tool"], question.payload["args"])
            said = answer or await anyio.to_thread.run_sync(input, "approve? [y/n] ")
            run = await executor.answer(run.run_id, question.id, Approve() if said == "y" else Deny())
        await anyio.Path(page).write_text(run.to_html())
        print(run.output)
    server.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer", choices=["y", "n"], help="answer every question so")
    parser.add_argument("--page", default="form_filling.html", help="where the page of the run is written")
    options = parser.parse_args()
    anyio.run(main, options.answer, options.page)
