"""The tools of an episode in a repository, one per module. Each is an object with one method, which the model calls."""
