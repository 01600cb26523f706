"""What tests of several folders share: processes, servers, graphs and measures."""
