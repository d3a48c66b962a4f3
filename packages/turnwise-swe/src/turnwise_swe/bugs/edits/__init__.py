"""Edits that plant a bug, as byte spans of the source text: nothing outside the spans changes, not even its format."""
