"""A plan before acting: one conversation plans, another acts on what it is shown of the plan."""
