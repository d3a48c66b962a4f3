"""Step- and turn-level credit: one advantage per turn, spread over the tokens that turn sampled."""
