"""From rewards to advantages of a run: credit methods by name, what they read, and annotators that measure it."""
