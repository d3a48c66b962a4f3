"""The one error that the sandbox raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SandboxError(RuntimeError):
    """The sandbox refused a request or failed. Errors of the sandboxed code are in its `Execution` instead."""


@contextmanager
def boundary(what: str) -> Iterator[None]:
    """Turn whatever a provider, a subprocess or another sandbox raises into a SandboxError that names `what`.

    A SandboxError passes unchanged."""
    try:
        yield
    except SandboxError:
        raise
    except Exception as cause:
        raise SandboxError(f"{what}: {type(cause).__name__}: {cause}") from cause
