"""The node kinds that come with the library, one file each.

Each names the state fields that it reads and writes by *ports*, which can be changed for each node. Each has a `State`
class to inherit from, with the fields that the ports name by default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.graph.model import ITEM
    from orchestrator.nodes.advance import Advance
    from orchestrator.nodes.ask import Ask
    from orchestrator.nodes.call import Call
    from orchestrator.nodes.call_model import CallModel
    from orchestrator.nodes.check_call import CheckCall
    from orchestrator.nodes.choose_args import ChooseArgs
    from orchestrator.nodes.choose_tool import ChooseTool
    from orchestrator.nodes.classify import Classify
    from orchestrator.nodes.complete import Complete
    from orchestrator.nodes.confirm import Confirm
    from orchestrator.nodes.continuation import CallProtocol
    from orchestrator.nodes.execute import Execute
    from orchestrator.nodes.extract import AnswerForm, Extract
    from orchestrator.nodes.fill import Fill
    from orchestrator.nodes.observe import Observe
    from orchestrator.nodes.plan import Plan
    from orchestrator.nodes.read_plan import ReadPlan
    from orchestrator.nodes.read_reply import ReadReply
    from orchestrator.nodes.record import Record
    from orchestrator.nodes.repeat import Repeat
    from orchestrator.nodes.respond import Respond
    from orchestrator.nodes.route import Route
    from orchestrator.nodes.sleep import Sleep
    from orchestrator.nodes.solve import Solve
    from orchestrator.nodes.state_types import STATE_TYPES
    from orchestrator.nodes.steps import Step
    from orchestrator.nodes.subgraph import Subgraph
    from orchestrator.nodes.think import Think
    from orchestrator.nodes.vote import Vote
    from orchestrator.nodes.wait import Wait
    from orchestrator.nodes.work import Work

__all__ = [
    "ITEM",
    "STATE_TYPES",
    "Advance",
    "AnswerForm",
    "Ask",
    "Call",
    "CallModel",
    "CallProtocol",
    "CheckCall",
    "ChooseArgs",
    "ChooseTool",
    "Classify",
    "Complete",
    "Confirm",
    "Execute",
    "Extract",
    "Fill",
    "Observe",
    "Plan",
    "ReadPlan",
    "ReadReply",
    "Record",
    "Repeat",
    "Respond",
    "Route",
    "Sleep",
    "Solve",
    "Step",
    "Subgraph",
    "Think",
    "Vote",
    "Wait",
    "Work",
]

_OTHERS = {
    "orchestrator.graph.model": ("ITEM",),
    "orchestrator.nodes.continuation": ("CallProtocol",),
    "orchestrator.nodes.extract": ("AnswerForm", "Extract"),
    "orchestrator.nodes.state_types": ("STATE_TYPES",),
    "orchestrator.nodes.steps": ("Step",),
}
KINDS = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): name
    for name in __all__
    if name == "Extract" or not any(name in names for names in _OTHERS.values())
}
"""Name of a kind -> its class. The module has the name of the kind."""

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(
        __name__,
        {**{f"{__name__}.{kind}": (name,) for kind, name in KINDS.items()}, **_OTHERS},
    )
