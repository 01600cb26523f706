"""New projects: which names they may have, and which files they consist of."""
