"""Tasks: what an agent is trained for. `medical/` is the first one: facts, sample database and questions."""
