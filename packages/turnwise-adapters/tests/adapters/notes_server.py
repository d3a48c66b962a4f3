"""A family of ours as an OpenEnv server, for the test of the way out."""

from turnwise_adapters.as_openenv import to_openenv
from turnwise.testing.notes import NotesFamily

app = to_openenv(NotesFamily(linked=0.0), max_sessions=16)
