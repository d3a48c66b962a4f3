"""Proofs about a stored run: that what trained is what was sampled, and why a trajectory was credited as it was."""
