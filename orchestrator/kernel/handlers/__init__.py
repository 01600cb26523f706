"""What each record changes: one function for each type, `handler(run, record)`, that works in place."""
