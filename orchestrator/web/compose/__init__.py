"""The editor of graphs: kinds of nodes, the check of a text, tries, saved graphs."""
