"""When groups start, how old they may be when they train, and what the batch does about late ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class ScheduleSection(Section):
    """Synchronous training by default: sample a batch, train on it, sample the next with the new weights."""

    max_staleness: int = Field(0, ge=0)
    """Maximum number of versions by which the weights that train a group may be newer than those it was started with. 0
    is synchronous training; above 0 rollouts continue during the trainer's step, and no group is ever older."""
    max_open_groups: int = Field(0, ge=0)
    """Maximum number of groups in progress or waiting to train; 0 is as many as the staleness allows, (max_staleness +
    1) batches."""
    interrupt: Literal["finish", "continue", "restart"] = "continue"
    """What happens to unfinished replies when the weights change: they "finish" under the old weights first, "continue"
    under the new ones (each token records its version), or "restart" from the beginning of the reply."""
    overdraw: int = Field(0, ge=0)
    """Members started per group in addition to rollout.group_size; the first to be scored are kept, the others are
    cancelled."""
    late: Literal["wait", "cut", "drop"] = "wait"
    """What the batch does about a group that delays it for longer than `patience_s`: "wait" for it, "cut" its
    unfinished members, or "drop" it."""
    patience_s: float = Field(30.0, ge=0)
    """Seconds that a batch waits for a group that must train in it, before `late` applies."""
    min_members: int = Field(2, ge=1)
    """Minimum number of members for a group to train after a cut."""
