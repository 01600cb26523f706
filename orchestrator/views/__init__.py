"""Views of a journal for people: folds of a run's records into plain data, in a layer below the executor.

`reader` reads the records once and feeds the folds:

- `trace` keeps an `overlay` for drawings;
- `causes` has the reasons for steps and edges, and `explainer` words them;
- `timeline` lists the steps with their calls and the times when they worked, and `step_names` gives them short names;
- `states` has the state before and after each step;
- `transcript` is what was said in a run: messages, replies, calls of tools, questions and answers;
- `step_tree` is the tree that a terminal shows;
- `diff` compares two runs into a `run_diff`, and `replay_result` a run and its replay; `superseded` are the parts of a
  reopened run that no longer count, and `version_names` the names that a run had in another version of its graph;
- `run_cost` measures the cost of a run.

`step_work` has the counts of a step that several folds use. `run` is the run for users, `history` its steps, `events`
its records as events. Nothing here does input or output, except that a `Run` reads its own records on request.
"""
