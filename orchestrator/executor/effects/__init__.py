"""Effects of a step: calls of models, tools and functions, and questions.

The law: what touches the outside is journaled before it is made and after, and never made twice without asking.

    effect          what an effect is, and the attempt of a step that makes it
    decide          what the journal decides about an effect, as data
    perform         does what was decided
    under_way       effects in progress, journaled before and after
    limits          admits a call by the limits of the run and of the runs around it
    questions       what a step asks, also of effects whose outcome is unknown
    earlier_calls   what is asked before a call that another run or attempt may have made
    models          models as a node has them
    tools           tools and functions as a node has them
    graphs          a graph as a tool
    memory          memory across runs as a node has it
"""
