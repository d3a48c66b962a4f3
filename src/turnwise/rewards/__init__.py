"""Rewards: pure functions from replies and gold answers to numbers, checked at start by cases that must pass and must
fail."""
