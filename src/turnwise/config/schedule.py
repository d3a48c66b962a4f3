"""When groups start, how old they may be when they train, and what the batch does about late ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class ScheduleSection(Section):
    """Synchronous training by default: sample a batch, train on it, sample the next with the new weights."""

    max_staleness: int = Field(0, ge=0)
    """By how many versions the weights that train a group may be newer than those it was started with. 0 is synchronous
    training; above it rollouts go on while the trainer steps, and no group is ever older."""
    max_open_groups: int = Field(0, ge=0)
    """Most groups under way or waiting to train; 0 is as many as the staleness allows, (max_staleness + 1) batches."""
    interrupt: Literal["finish", "continue", "restart"] = "continue"
    """What becomes of replies under way when the weights change: they "finish" under the old ones first, "continue"
    under the new ones (each token records its version), or "restart" from the beginning of the reply."""
    overdraw: int = Field(0, ge=0)
    """Members started per group beyond rollout.group_size; the first to be scored are kept, the others are cut."""
    late: Literal["wait", "cut", "drop"] = "wait"
    """What the batch does about a group that holds it up for longer than `patience_s`: "wait" for it, "cut" its
    unfinished members, or "drop" it."""
    patience_s: float = Field(30.0, ge=0)
    """Seconds a batch waits for a group that its deadline requires, before `late` applies."""
    min_members: int = Field(2, ge=1)
    """Members a group must have to train after a cut."""
