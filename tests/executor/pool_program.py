"""Runs of which one at a time may press: `orchestrator worker --app tests.executor.pool_program:app`.

Each press writes when it begins and ends to the file that the environment variable `DIARY` names. It waits inside until
two processes have begun one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from orchestrator import Graph, Update, node
from orchestrator.executor import App
from tests.executor.work_program import note


class Sheet(BaseModel):
    number: int = 0


@node(pool="press")
def press(state: Sheet) -> Update:
    """Press, once a step of another process presses, too."""
    note(f"begin {os.getpid()}")
    while len(set(Path(os.environ["DIARY"]).read_text().split())) < 3:  # `begin`, and two processes
        time.sleep(0.02)
    note(f"end {os.getpid()}")
    return {}


pressing = Graph(
    name="pressing", state=Sheet, input="number", nodes={"press": press}, edges="START -> press -> END",
    pools={"press": None},
)  # fmt: skip
app = App(graphs=[pressing], pools={"press": 1})
