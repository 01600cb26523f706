"""Forks of runs: making them, what they change, what they would do, and the runs that their calls started."""
