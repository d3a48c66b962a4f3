"""Answering twice without any information in between."""
