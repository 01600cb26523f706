"""What a run does, as a tree on a terminal.

`model` folds events, `brief` puts what they say in few words, `paint` makes lines of both, `screen` shows them.
"""
