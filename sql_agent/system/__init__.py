"""Small tools for the operating system: files, imports, processes, signals and sockets."""
