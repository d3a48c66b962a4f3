"""Theorems that a prover outside this process checks: what a prover is, and the environment that plays it."""
