"""What a journal says to people: folds of a run's records into plain data, which `render` draws."""
