"""The sample facts, the database built from them, and questions with gold SQL over any medical database."""
