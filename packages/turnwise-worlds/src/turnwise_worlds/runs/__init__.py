"""Kinds of run that only these worlds have."""
