"""Ask models questions in a conversation, in the terminal or on a page, and keep how people rate the answers."""
