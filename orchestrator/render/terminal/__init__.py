"""Runs on a terminal: a live tree, reports, tables and questions.

`excerpts` shortens the texts of steps and calls; `tree` makes lines of a `views.step_tree`, and shows them.
"""
