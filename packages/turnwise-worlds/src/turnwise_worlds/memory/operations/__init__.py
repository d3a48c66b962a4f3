"""A bounded store of lines that are added, updated and deleted (Memory-R1)."""
