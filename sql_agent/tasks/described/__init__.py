"""A task made from the description of a database: NAME.toml, which `sql-agent init` guesses and a person corrects."""
