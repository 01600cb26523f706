"""Code that tests of several folders share: processes, servers, graphs and measures."""
