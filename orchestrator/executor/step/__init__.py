"""One attempt of one step: what its node is handed, how it runs, and the record that says how it ended."""
