"""Questions that a planner has answered by searchers, each in a conversation of its own."""
