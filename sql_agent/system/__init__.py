"""Helpers around the operating system: files, memory, signals, sockets and web servers."""
