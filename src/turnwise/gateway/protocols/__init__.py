"""The protocols of clients: each reads requests into `Call` and writes replies, events and refusals as JSON values."""
