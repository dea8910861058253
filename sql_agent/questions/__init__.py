"""Question files: read, check, reword and filter."""
