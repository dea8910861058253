"""The task spider: questions about SQLite databases, answered with SQL and graded by the result of the SQL."""
