"""Planning before acting: one conversation plans, another acts on the plan that it is shown."""
