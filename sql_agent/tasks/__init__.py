"""Tasks: the databases, prompts, questions and rewards that an agent is trained with."""
