"""Agent strategies as declarative graphs, run by a checkpointing async executor."""
