"""Query SQLite files: opening, connections, dialect, functions."""
