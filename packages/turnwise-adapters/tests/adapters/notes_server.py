"""A family of ours as an OpenEnv server, for the test of the way out."""

from turnwise.testing.notes import NotesFamily
from turnwise_adapters.as_openenv import to_openenv

app = to_openenv(NotesFamily(linked=0.0), max_sessions=16)
