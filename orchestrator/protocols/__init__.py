"""Protocols by which other programs talk to a graph. Each is an ASGI application, to mount or to serve alone.

    from orchestrator import Executor
    from orchestrator.protocols import agui_app

    executor = Executor("sqlite:///runs.db", graphs=[graph], model=model, streams="always")
    app = agui_app(executor, graph)              # uvicorn module:app

The journal is the history: of what clients post, only the newest message of the user and answers to open questions are
taken. All need the extra `web`, AG-UI the extra `agui`, and A2A the extra `a2a`. Importing this package needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.protocols.a2a_push import A2aPush
    from orchestrator.protocols.a2a_server import a2a_app
    from orchestrator.protocols.a2a_tool import A2aAgent
    from orchestrator.protocols.agui import agui_app
    from orchestrator.protocols.ui_stream import ui_app, ui_stream

__all__ = ["A2aAgent", "A2aPush", "a2a_app", "agui_app", "ui_app", "ui_stream"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "orchestrator.protocols.a2a_push": ("A2aPush",),
            "orchestrator.protocols.a2a_server": ("a2a_app",),
            "orchestrator.protocols.a2a_tool": ("A2aAgent",),
            "orchestrator.protocols.agui": ("agui_app",),
            "orchestrator.protocols.ui_stream": ("ui_app", "ui_stream"),
        },
    )
