"""Where the processes of a run live."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from turnwise.config.section import Section


class ScaleSection(Section):
    """This machine, or a Ray cluster (extra `ray`)."""

    ray: str = ""
    """"" starts processes here. "local" starts a Ray cluster on this machine that ends with the run; an address joins
    one: "auto", or "HOST:PORT" with the cluster's own port, 6379 unless it was started with another. Rollout processes,
    vLLM engines and ranks then are supervised actors."""
    strategy: Literal["PACK", "SPREAD"] = "PACK"
    """Placement of the actors: on as few nodes as they fit on, or on as many as there are."""
    cpus: float = Field(1.0, ge=0)
    """Cores of a node that every actor reserves."""

    @field_validator("ray")
    @classmethod
    def _check_address(cls, address: str) -> str:
        if address in ("", "local", "auto") or re.fullmatch(r"[^/\s]+:\d{1,5}", address):
            return address
        raise ValueError(
            "it must be 'local', 'auto' or HOST:PORT with the port of the cluster itself (6379 by default), not the "
            "address of its dashboard (http://) or of Ray's client (ray://)"
        )
