"""Engines: in-process ones that share the trainer's weights, worker processes, vLLM, servers, and a scripted one for
tests."""
