"""Effects of a step: calls of models, tools and functions, and questions.

The law: what touches the outside is journaled before it is made and after, and never made twice without asking.

    replay             what the journal decides about an effect, as data
    perform            does what was decided
    effect             what an effect is, and the attempt of a step that makes it
    under_way          effects between their intent and their end
    questions          what a step asks, also of effects whose outcome is unknown
    callers            the runs around a run, and what it spends of their limits
    shared_limits      admits a call by the limits of the run and of those around it
    model_calls        models as a node has them
    tool_calls         tools and functions as a node has them
    graph_tools        a graph as a tool
"""
