"""Runs: the only place where config becomes objects, and one file per kind of run."""
