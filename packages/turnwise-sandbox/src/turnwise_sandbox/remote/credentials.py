"""Reads keys from environment variables, when a backend is built. Keys are never logged or shown."""

from __future__ import annotations

import os

from turnwise_sandbox.errors import SandboxError


def read_credential(variable: str, service: str) -> str:
    """The value of an environment variable. Raises SandboxError if it is missing or empty."""
    value = os.environ.get(variable, "")
    if not value:
        raise SandboxError(f"{service} needs a key in the environment variable {variable}; set it and start again")
    return value
