"""How training and sampling overlap."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section


class ScheduleSection(Section):
    """When groups are sampled and trained."""

    max_staleness: int = Field(0, ge=0)
    """Most versions between the weights that sampled a token and those it trains; 0 is synchronous."""
