"""What a run does, as a tree on a terminal: `model` folds events, `paint` makes lines of it, `screen` shows them."""
