"""Runs on a terminal: a live tree, reports, tables and questions.

`excerpts` puts what steps and calls say in few words, `tree` makes lines of a `views.step_tree`, `screen` shows them.
"""
