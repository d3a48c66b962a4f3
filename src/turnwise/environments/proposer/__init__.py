"""Self-play: one role proposes problems, others solve them, and what is proposed follows what can be learned from."""
