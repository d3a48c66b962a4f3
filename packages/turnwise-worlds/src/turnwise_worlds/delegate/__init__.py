"""Questions that a planner answers through searchers, each in its own conversation."""
