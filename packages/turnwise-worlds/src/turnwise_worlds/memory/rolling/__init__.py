"""An agent whose context restarts from its own note (MEM1, ReSum)."""
