"""Rollouts in processes of their own, each with environments, sandboxes and an engine."""
