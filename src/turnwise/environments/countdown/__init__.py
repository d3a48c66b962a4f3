"""Countdown: reach a target from a few numbers, one operation per reply. The exact value of every state is known."""
