"""Grading of a candidate's code: by tests that it cannot touch, or by its output for given input."""
