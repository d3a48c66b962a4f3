"""Sandboxes on other machines, all behind the `Sandbox` protocol, and what travels between them."""
