"""Ask a person for a value."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, JsonValue, model_validator

from orchestrator.context import Context
from orchestrator.errors import InvalidUpdate, UserDenied
from orchestrator.graph.model import Node, Port
from orchestrator.graph.state import StateSchema
from orchestrator.nodes.templates import check, fill, plain
from orchestrator.tools.validation import faults as schema_faults


def _is_reject(on_busy: str) -> bool:
    """Return True for the default, which is left out of the data so that digests stay the same."""
    return on_busy == "reject"


class Ask(Node, kind="ask"):
    """Ask a person, wait for the answer, across restarts if necessary, and write it to a field.

    Raises:
        UserDenied: the person denied the question, or the deadline passed.
    """

    fills = ("answer",)
    asks = "person"

    class State(BaseModel):
        """The field that the port names by default."""

        reply: str = ""
        """The answer."""

    prompt: Annotated[str, Field(examples=["What should be done?"])]
    """The question. `{field}` is replaced by the value of each shown field."""
    show: Annotated[tuple[str, ...], Port()] = ()
    """Fields that the question shows."""
    answer: Annotated[str, Port()] = "reply"
    """Field that gets the answer."""
    choices: tuple[str, ...] = ()
    """The only accepted answers; empty for any answer."""
    accepts: dict[str, JsonValue] | None = None
    """JSON Schema of the answer, for the person who answers; the field's own type is checked in any case."""
    deadline: float | None = None
    """Seconds to wait for the answer; None for no limit."""
    on_busy: Literal["reject", "queue", "interrupt"] = Field(default="reject", exclude_if=_is_reject)
    """What happens to a message to this node (an event of its name, see `Executor.send`) that arrives while the run is
    not waiting here. `reject`: refuse it. `queue`: keep it, and answer the question with it when the run arrives here.
    `interrupt`: the same, and the run continues here as soon as the running steps have ended; no others start.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        check(self.prompt, self.show)
        return self

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"asks to choose one of {len(self.choices)}" if self.choices else "asks a person"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    def _receives(self, name: str) -> tuple[str, ...]:
        return (name,)

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        shown = plain({name: getattr(state, name) for name in self.show})
        prompt = fill(self.prompt, **shown)
        fault = ""
        while True:
            answer = await ctx.ask(
                "input",
                prompt=prompt + fault,
                payload=shown,
                choices=self.choices,
                schema=self.accepts,
                deadline=self.deadline,
                event="" if self.on_busy == "reject" else ctx.node,
            )
            if answer.type == "deny":
                why = f": {answer.reason}" if answer.reason else ""
                raise UserDenied(f"{prompt} was not answered{why}")
            value = answer.value if answer.type == "value" else True
            # The executor refuses an answer that the question does not accept; after one that only the state does not
            # accept, the question is asked again.
            refused = self._refused(value, state)
            if refused is None:
                return {self.answer: value}
            fault = f" ({refused})"

    def _refused(self, value: object, state: object) -> str | None:
        if self.choices and value not in self.choices:
            return f"choose one of: {', '.join(self.choices)}"
        faults = [] if self.accepts is None else schema_faults(value, self.accepts, self.accepts, "the answer")
        if faults:
            return "; ".join(faults)
        if not isinstance(state, BaseModel):
            return None
        try:
            StateSchema.of(type(state)).encode_update({self.answer: value})
        except InvalidUpdate as error:
            return str(error)
        return None
