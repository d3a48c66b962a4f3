"""Rewards that need no label: votes, clusters of answers, and the policy's own confidence."""
