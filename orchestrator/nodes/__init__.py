"""The node kinds of the library: one module for each kind, or for a family of kinds.

Each kind names the state fields that it reads and writes by *ports*, which can be changed for each node. Each has a
`State` class to inherit from, with the fields that the ports name by default.
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
    from orchestrator.nodes.check_call import CheckCall
    from orchestrator.nodes.choose_args import ChooseArgs
    from orchestrator.nodes.choose_tool import ChooseTool
    from orchestrator.nodes.classify import Classify
    from orchestrator.nodes.clear_results import ClearResults
    from orchestrator.nodes.code import Code, CodeBlock
    from orchestrator.nodes.compact import Compact
    from orchestrator.nodes.complete import Complete
    from orchestrator.nodes.confirm import Confirm
    from orchestrator.nodes.decide import Decide
    from orchestrator.nodes.execute import Execute
    from orchestrator.nodes.extract import AnswerForm, Extract
    from orchestrator.nodes.guard import Guard, Rule
    from orchestrator.nodes.judge import Judge
    from orchestrator.nodes.loop_guard import LoopGuard
    from orchestrator.nodes.model_decision import Constrain
    from orchestrator.nodes.observe import Observe
    from orchestrator.nodes.plan import Plan, ReadPlan
    from orchestrator.nodes.planned_calls import Fill, Record, Work
    from orchestrator.nodes.repeat import Repeat
    from orchestrator.nodes.respond import CallModel, CallProtocol, ReadReply, Respond
    from orchestrator.nodes.route import Route
    from orchestrator.nodes.select import Select
    from orchestrator.nodes.sleep import Sleep
    from orchestrator.nodes.solve import Solve
    from orchestrator.nodes.state_types import STATE_TYPES
    from orchestrator.nodes.steps import Step
    from orchestrator.nodes.subgraph import Subgraph
    from orchestrator.nodes.think import Think
    from orchestrator.nodes.vote import Vote
    from orchestrator.nodes.wait import Wait
    from orchestrator.nodes.window import ContextUsage

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
    "ClearResults",
    "Code",
    "CodeBlock",
    "Compact",
    "Complete",
    "Confirm",
    "Constrain",
    "ContextUsage",
    "Decide",
    "Execute",
    "Extract",
    "Fill",
    "Guard",
    "Judge",
    "LoopGuard",
    "Observe",
    "Plan",
    "ReadPlan",
    "ReadReply",
    "Record",
    "Repeat",
    "Respond",
    "Route",
    "Rule",
    "Select",
    "Sleep",
    "Solve",
    "Step",
    "Subgraph",
    "Think",
    "Vote",
    "Wait",
    "Work",
]

_HOMES = {
    "orchestrator.graph.model": ("ITEM",),
    "orchestrator.nodes.code": ("Code", "CodeBlock"),
    "orchestrator.nodes.extract": ("AnswerForm", "Extract"),
    "orchestrator.nodes.guard": ("Guard", "Rule"),
    "orchestrator.nodes.plan": ("Plan", "ReadPlan"),
    "orchestrator.nodes.planned_calls": ("Fill", "Record", "Work"),
    "orchestrator.nodes.model_decision": ("Constrain",),
    "orchestrator.nodes.respond": ("CallModel", "CallProtocol", "ReadReply", "Respond"),
    "orchestrator.nodes.state_types": ("STATE_TYPES",),
    "orchestrator.nodes.steps": ("Step",),
    "orchestrator.nodes.window": ("ContextUsage",),
}
"""Module -> its names, if it has several or is not named after a kind. Any other kind has a module of its own name."""
_NO_KINDS = (
    "ITEM",
    "STATE_TYPES",
    "AnswerForm",
    "CallProtocol",
    "CodeBlock",
    "Constrain",
    "ContextUsage",
    "Rule",
    "Step",
)
KINDS = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): name for name in __all__ if name not in _NO_KINDS}
"""Name of a kind -> its class."""

if not TYPE_CHECKING:  # type checkers know these names from the imports above and report all others
    _alone = {name: kind for kind, name in KINDS.items() if not any(name in names for names in _HOMES.values())}
    __getattr__, __dir__ = lazy_names(
        __name__, {**{f"{__name__}.{kind}": (name,) for name, kind in _alone.items()}, **_HOMES}
    )
