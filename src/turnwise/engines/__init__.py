"""Samplers: a scripted one for tests and trials, and the local one that shares the trainer's weights."""
