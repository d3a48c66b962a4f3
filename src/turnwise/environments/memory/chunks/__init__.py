"""A memory that is written anew with every chunk of a stream (MemAgent)."""
