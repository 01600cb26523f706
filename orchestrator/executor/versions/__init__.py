"""Migration of a run to another version of its graph: comparison of both versions, migration, and migrated state."""
