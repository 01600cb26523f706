"""docs/patterns.md: its table and drawings are generated, and what it says of each pattern is seen in runs."""
