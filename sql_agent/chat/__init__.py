"""Ask models questions, in the terminal or on a web page, and store people's ratings of the answers."""
