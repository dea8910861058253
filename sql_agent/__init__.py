"""Train a small language model to answer questions by searching a database with SQL."""
