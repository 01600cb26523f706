"""What a journal says to people: folds of a run's records into plain data, below the executor.

`reader` reads the records once and feeds the folds:

- `trace` keeps an `overlay` for drawings, with `plans` and `work_time`;
- `causes` remembers why things happened, and `explainer` words it;
- `timeline` lists the steps with their `calls`, and `activity` says when they worked;
- `states` has the state before and after each step;
- `step_tree` is the tree that a terminal shows;
- `diff` compares two runs, with their calls as text from `call_text`, and gives a `run_diff`;
- `critical_path` and `spending` measure what a run took.

`run` is a run as users see it, `history` its steps, `events` its records as events. Nothing here does input or output,
except that a `Run` reads its own records when it is asked for them.
"""
