"""Countdown: reach a target from a few numbers, one operation per reply. Its exact values are known."""
