"""A log of requests and replies."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable

from orchestrator.errors import message_of
from orchestrator.models.base import ModelEvent, ModelRequest, calling_node
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.models.middleware.base import Ask, Middleware
from orchestrator.redaction import redact as redact_patterns


class Logged(Middleware):
    """Logs each request, and its reply or error, as one line each; text that looks like a secret is redacted.

        model 'gpt' is asked by 'plan': 3 messages, 2 tools: user 'What is the…'
        model 'gpt' replied to 'plan' in 0.812 s: stop, 120 tokens in and 31 out: 'It is…'

    Errors, and readers that stop early or are cancelled, are logged in the same way.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        level: int = logging.INFO,
        *,
        redact: Callable[[str], str] = redact_patterns,
        content: bool = True,
        length: int = 200,
    ) -> None:
        """
        Args:
            logger: the logger. Default: `orchestrator.models`.
            level: the level of requests and replies; errors are logged as warnings or higher.
            redact: applied to everything that is logged.
            content: whether to log the last message, the reply's text and its tool calls as well.
            length: maximum number of characters of each of those.
        """
        self._logger = logger or logging.getLogger("orchestrator.models")
        self._level, self._redact, self._content, self._length = level, redact, content, length

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        node = calling_node.get()
        began = time.monotonic()

        def log(said: str, rest: Callable[[], str], level: int = self._level) -> None:
            if self._logger.isEnabledFor(level):
                whose = "" if node is None else f" {self._shown(node)}"
                line = f"model {self._shown(ask.name)} {said if whose else said.rpartition(' ')[0]}{whose}{rest()}"
                self._logger.log(level, "%s", self._redact(line))

        def after() -> str:
            return f"{time.monotonic() - began:.3f} s"

        log("is asked by", lambda: f": {self._of_request(request)}")
        reply: Reply | None = None
        try:
            async for event in ask(request):
                reply = event.reply or reply
                yield event
        except Exception as error:
            words = f"{type(error).__name__}: {self._shown(message_of(error))}"
            log("failed for", lambda: f" after {after()}: {words}", max(self._level, logging.WARNING))
            raise
        except BaseException:
            log("was left by", lambda: f" after {after()}")
            raise
        if reply is not None:
            summary = self._of_reply(reply)
            log("replied to", lambda: f" in {after()}: {summary}")

    def _of_request(self, request: ModelRequest) -> str:
        summary = f"{len(request.messages)} messages, {len(request.tools)} tools"
        last = request.messages[-1] if request.messages else None
        if last is None or not self._content:
            return summary
        return f"{summary}: {last.role} {self._shown(last.content)}{self._calls(last.tool_calls)}"

    def _of_reply(self, reply: Reply) -> str:
        usage = reply.usage
        spent = "" if usage is None else f", {usage.input_tokens} tokens in and {usage.output_tokens} out"
        summary = f"{self._shown(reply.finish)[1:-1]}{spent}{', cached' if reply.details.get('cached') else ''}"
        return f"{summary}: {self._shown(reply.text)}{self._calls(reply.tool_calls)}" if self._content else summary

    def _calls(self, calls: tuple[ToolCall, ...]) -> str:
        written = ((call.name, call.raw if call.arguments is None else json.dumps(call.arguments)) for call in calls)
        return "".join(f", calls {self._shown(f'{name}({arguments})')}" for name, arguments in written)

    def _shown(self, text: str) -> str:
        """Redact a text, then cut it, as a cut could halve a secret; quote it, so that it stays on one line."""
        text = self._redact(text)
        return repr(text if len(text) <= self._length else text[: self._length] + "…")
