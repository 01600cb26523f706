"""Views of a journal for people: folds of a run's records into plain data, below the executor.

`reader` reads the records once and feeds the folds:

- `trace` keeps an `overlay` for drawings;
- `causes` remembers why things happened, and `explainer` words it;
- `timeline` lists the steps with their calls and the times when they worked, and `step_names` gives them short names;
- `states` has the state before and after each step;
- `step_tree` is the tree that a terminal shows;
- `diff` compares two runs into a `run_diff`, and `replay_result` a run and its replay; `superseded` are the parts of a
  reopened run that no longer count, and `version_names` the names that a run had in another version of its graph;
- `run_cost` measures what a run took.

`step_work` has what several folds count of a step. `run` is a run as users see it, `history` its steps, `events` its
records as events. Nothing here does input or output, except that a `Run` reads its own records when it is asked for
them.
"""
