"""API calls from schemas with opaque names."""
