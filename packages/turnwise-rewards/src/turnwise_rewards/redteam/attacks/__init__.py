"""Scripted attacks by what they exploit; `table.py` lists all."""
