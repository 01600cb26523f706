"""What a run does, as a tree on a terminal.

`excerpts` puts what steps and calls say in few words, `tree` makes lines of a `views.step_tree`, `screen` shows them.
"""
