"""Floor 0: the types, protocols, errors, metrics and seeds that every folder shares (standard library and numpy
only)."""
