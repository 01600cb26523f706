"""A condition on the state decides which edge follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, field_validator

from orchestrator.context import Context
from orchestrator.errors import GraphUnknown
from orchestrator.graph.model import Effect, GraphDefinition, Node, Port
from orchestrator.graph.outcome import Guarded
from orchestrator.graph.topology import ANY
from orchestrator.nodes.guards import GuardFault, check_guard, failure_of_guards, fields_of_guards, values_of
from orchestrator.nodes.shown_fields import plain


class Route(Node, kind="route"):
    """Take the outcome of the first case whose guard is true, else `default`.

    A guard is a condition on state fields in CEL, the Common Expression Language (https://cel.dev):
    `Route(cases={"billing": "kind == 'billing' && score > 0.5"}, default="other")`. Guards need the extra `route`. They
    are checked against the types of the fields when the graph is built. Optional fields, models and dates are of no
    type that CEL knows, so what is inside of them is first looked at in a run: `has(user.age) && user.age > 17`.

    All guards are evaluated, and their values are part of the run: `show`, `why` and the page of a run tell them. The
    cost is bounded: a guard has at most 2,000 characters, reads at most 1,000,000, and has one comprehension at most.

    Raises:
        AgentError: no guard is true and there is no `default`, or one before the first true guard cannot be evaluated.
    """

    look = "code"

    in_order = ("cases",)
    fills = ()

    effect: Effect = "pure"
    """It looks at the state only."""
    cases: Annotated[Mapping[str, str], Port(), Field(examples=[{"long": "size(question) > 200"}])]
    """Outcome -> guard, in the order in which they are tried."""
    default: Annotated[str | None, Field(examples=["short"])] = None
    """The outcome where no guard is true. None: the step fails, and an edge for `error` has to take that."""

    @field_validator("cases")
    @classmethod
    def _check_cases(cls, cases: Mapping[str, str]) -> Mapping[str, str]:
        if not cases:
            raise ValueError("there are no cases: add one, an outcome and its guard")
        return cases

    @property
    def outcomes(self) -> tuple[str, ...]:
        more = () if self.default is None or self.default in self.cases else (self.default,)
        return (*self.cases, *more)

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"by {', '.join(fields_of_guards(self.cases)) or 'guards'}"

    def ports(self) -> dict[str, str]:
        """See `Node.ports`: the fields that the guards read."""
        return {f"cases[{name}]": name for name in fields_of_guards(self.cases)}

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        schema = graph.schema
        annotations = {field: schema.field(field).annotation for field in schema.fields}
        for outcome, text in self.cases.items():
            try:
                if set(fields_of_guards({outcome: text}, schema.fields)).issubset(schema.fields):
                    check_guard(text, annotations)
            except GuardFault as fault:
                yield f"guard {outcome!r} of {name}, {text!r:.200}, cannot be used: {fault}"
            except GraphUnknown as error:
                yield f"{name}: {error}"
                return
        sources = (name, ANY)
        if self.default is None and not any(one.source in sources and one.outcome == "error" for one in graph.edges):
            yield f"{name} takes no edge where no guard is true: set default=, or add '{name} -> NODE : error'"

    async def run(self, state: object, ctx: Context) -> Guarded[str]:
        names = fields_of_guards(self.cases)
        values = plain({name: getattr(state, name) for name in names if hasattr(state, name)})
        fields = getattr(type(state), "model_fields", {})
        annotations = {name: fields[name].annotation if name in fields else None for name in names}
        guards = values_of(self.cases, values, annotations)
        for outcome, value in guards.items():
            if value is True:
                return Guarded(outcome, guards=guards)
            if value is not False:
                raise failure_of_guards(ctx.node, {outcome: value}, self.cases, values)
        if self.default is None:
            raise failure_of_guards(ctx.node, guards, self.cases, values)
        return Guarded(self.default, guards=guards)
