"""Code shared by the two processes of `step.py`: taking turns, and a stopwatch. Standard library only; runs in either
environment.

Protocol, one JSON object per line. Standard input: first the settings, then an empty object for every step that may
start now; the end of the input ends the process. Standard output: first what the side says about itself, then one row
per step:

    {"step": 1, "seconds": 4.2, "processor_seconds": 4.0, "phases": {"generation": 3.1, ...}, "reward": 0.5,
     "tokens": {"prompt": 19200, "sampled": 2100, ...}}

Whatever else a side prints goes to standard error.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PHASES = ("generation", "messages", "tools", "reward", "forward", "backward", "optimizer", "other")
"""generation: sampling. messages: rendering and parsing. tools, reward: inside these functions. forward:
log-probabilities and loss.
optimizer: clipping and the step. other: the rest of the step's wall time."""


class Side:
    """One process's end of the protocol."""

    def __init__(self) -> None:
        """Keeps standard output for rows: from here on, output of libraries goes to standard error."""
        self._rows = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def read(self) -> dict[str, Any] | None:
        """The next line of the input; None at its end."""
        line = sys.stdin.readline()
        return dict(json.loads(line)) if line.strip() else None

    def write(self, row: dict[str, Any]) -> None:
        """One line of output."""
        self._rows.write(json.dumps(row) + "\n")


class Stopwatch:
    """Seconds by phase. A phase inside another one stops the outer one's clock; every thread has its own phases."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._local = threading.local()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as `name`."""
        stack = self._local.__dict__.setdefault("stack", [])
        now = time.perf_counter()
        if stack:
            self.seconds[stack[-1][0]] += now - stack[-1][1]
        stack.append([name, now])
        try:
            yield
        finally:
            now = time.perf_counter()
            self.seconds[name] += now - stack.pop()[1]
            if stack:
                stack[-1][1] = now

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Wrap the function so that its calls count as `name`."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return function(*args, **kwargs)

        return call

    def wrap(self, owner: Any, attribute: str, name: str) -> None:
        """Replace a function of a module, class or object by `timed`."""
        setattr(owner, attribute, self.timed(getattr(owner, attribute), name))

    def wrap_torch(self) -> None:
        """Backward passes, gradient clipping and optimizer steps, the same way for either side."""
        import torch

        self.wrap(torch.Tensor, "backward", "backward")
        self.wrap(torch.nn.utils, "clip_grad_norm_", "optimizer")
        self.wrap(torch.optim.AdamW, "step", "optimizer")

    def split(self, total_s: float) -> dict[str, float]:
        """Seconds of every phase of a step that took `total_s`, and "other"; then resets to 0."""
        phases = {name: round(self.seconds[name], 4) for name in PHASES}
        phases["other"] = round(total_s - sum(phases.values()) + phases["other"], 4)
        self.seconds.clear()
        return phases
