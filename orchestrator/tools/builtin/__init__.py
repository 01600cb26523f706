"""Groups of tools that come with the library. Each is a module here whose tools are its group."""
