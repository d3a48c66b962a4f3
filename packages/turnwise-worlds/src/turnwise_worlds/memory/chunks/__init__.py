"""A memory that is rewritten with every chunk of a stream (MemAgent)."""
