"""A run that moves to another version of its graph: the comparison of both, the migration, and the moved state."""
