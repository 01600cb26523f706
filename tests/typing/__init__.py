"""Types: what checkers see of a user's program, and that parameters change nothing at run time."""
