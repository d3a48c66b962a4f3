"""Rollouts in separate processes, each with environments, sandboxes and an engine."""
