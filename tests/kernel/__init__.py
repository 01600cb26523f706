"""The rules of `docs/kernel.md`, held by named cases, traps and generated graphs under many interleavings."""
