"""Tasks of any family, played by an agent that other people's clients were used to write."""
