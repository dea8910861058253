"""Questions about many SQLite databases in Spider's format, answered with a statement and graded by its result."""
