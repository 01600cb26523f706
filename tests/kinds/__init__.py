"""The reference of node kinds, docs/kinds.md, which is made from the code and from an example of each kind."""
