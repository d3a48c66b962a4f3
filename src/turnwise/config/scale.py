"""Where the processes of a run live."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from turnwise.config.section import Section


class ScaleSection(Section):
    """This machine, or a Ray cluster (extra `ray`)."""

    ray: str = ""
    """"" starts processes on this machine. "local" starts a Ray cluster on this machine that ends with the run; an
    address joins one: "auto", or "HOST:PORT" with the cluster's own port, 6379 unless it was started with another.
    Rollout processes, vLLM engines and ranks are then supervised actors."""
    strategy: Literal["PACK", "SPREAD"] = "PACK"
    """Placement of the actors: on as few nodes as possible, or on as many as possible."""
    cpus: float = Field(1.0, ge=0)
    """Cores that every actor reserves on its node."""

    @field_validator("ray")
    @classmethod
    def _check_address(cls, address: str) -> str:
        if address in ("", "local", "auto") or re.fullmatch(r"[^/\s]+:\d{1,5}", address):
            return address
        raise ValueError(
            "it must be 'local', 'auto' or HOST:PORT with the cluster's own port (6379 by default), not the address of "
            "its dashboard (http://) or of Ray's client (ray://)"
        )
