"""Tasks and question files. `medical/` is the first task: facts, the sample built from them, and questions."""
