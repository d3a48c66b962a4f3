"""Runs: the objects of a recipe that sample, and one file per kind of run."""
