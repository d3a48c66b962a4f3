"""Environments from plain classes with `reset`, tools and a reward."""
