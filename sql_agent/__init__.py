"""Train a small language model to answer medical questions by searching a database with SQL."""
