"""One run while this process drives it: the tasks that run its steps, and what time brings about."""
