"""Read, check, reword and filter question files."""
