"""What a step costs, as ratios to the floor: bare asyncio, and bare sqlite3 with the same pragmas.

Run `python -m tests.benchmarks`; add `--json FILE` for the figures as data. Every ratio compares two
measurements of one run, taken in turn, so that the machine's mood cancels out.
"""
