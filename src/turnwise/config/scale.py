"""Where the processes of a run live."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class ScaleSection(Section):
    """This machine, or a Ray cluster (extra `ray`)."""

    ray: str = ""
    """"" starts processes here. "local" starts a Ray cluster on this machine that ends with the run; an address joins
    one ("auto", "HOST:PORT"). Rollout processes, vLLM engines and ranks then are supervised actors."""
    strategy: Literal["PACK", "SPREAD"] = "PACK"
    """Placement of the actors: on as few nodes as they fit on, or on as many as there are."""
    cpus: float = Field(1.0, ge=0)
    """Cores of a node that every actor reserves."""
