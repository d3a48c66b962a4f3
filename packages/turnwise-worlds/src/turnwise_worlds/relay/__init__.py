"""Two agents that each know half of the facts in question, and talk."""
