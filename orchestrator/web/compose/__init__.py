"""The editor of graphs: kinds of nodes, checks of texts, tries, saved graphs."""
