"""The execution rules as pure functions: no input or output, no clock, no randomness."""
