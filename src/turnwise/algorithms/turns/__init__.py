"""Step- and turn-level credit: one advantage per turn, spread over the sampled tokens of that turn."""
