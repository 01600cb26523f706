"""Calls that a step makes: to models, tools and functions, and questions to people. The journal names them effects.

The law: every external action is journaled before and after, and never repeated without asking.

    effect              what an effect is, and the attempt of a step that makes it
    reuse               what the journal decides about an effect, as data
    perform             carries out the decision
    under_way           effects in progress, journaled before and after
    limits              admits a call by the limits of the run and of its calling runs
    questions           questions of a step, also about effects with an unknown outcome
    irreversible_calls  the question before a call that another run or attempt may have made
    models              models as nodes see them
    tools               tools and functions as nodes see them
    graph_tool          a graph as a tool
    memory              memory across runs as nodes see it
"""
