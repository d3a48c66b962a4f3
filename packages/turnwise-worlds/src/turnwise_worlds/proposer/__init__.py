"""Self-play: one role proposes problems, others solve them, and proposals follow what can be learned."""
