"""Agent strategies as graphs: one file each, with its state, prompts, nodes and edges, and nothing else.

Each file has a function that builds the strategy (`tool_user.tool_user(max_steps=5)`) and `graph`, the strategy with
its defaults, which the command line knows by the file's name.
"""
