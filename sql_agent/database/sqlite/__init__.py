"""Query SQLite files: opening, dialect, functions, execution, and the state of the file."""
