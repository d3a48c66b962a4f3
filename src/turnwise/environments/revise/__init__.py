"""Answering twice without being told anything in between."""
