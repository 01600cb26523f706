"""Agent strategies as graphs: one module each, with its state, prompts, nodes and edges, and nothing else.

Each module has a function that builds the strategy (`tool_user.tool_user(max_steps=5)`) and `graph`, the strategy with
its defaults, which the command line finds by the module's name.

This folder is the package `orchestrator.strategies`, which is how programs import it.
"""

from __future__ import annotations

if __name__ == "graphs":  # imported by the folder's name, in a checkout: these are the same modules
    import sys
    from importlib import import_module
    from pkgutil import iter_modules

    sys.modules["graphs"] = import_module("orchestrator.strategies")
    for module in iter_modules(__path__):
        sys.modules[f"graphs.{module.name}"] = import_module(f"orchestrator.strategies.{module.name}")
