"""What the page for writing graphs asks for: the kinds of nodes, the check of a text, tries, saved graphs."""
