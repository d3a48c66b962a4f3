"""A context that is folded: side work is done in branches, of which only the returned message stays."""
