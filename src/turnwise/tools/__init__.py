"""Typed Python functions as tools."""
