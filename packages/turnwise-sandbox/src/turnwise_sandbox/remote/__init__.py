"""Sandboxes on other machines, which implement the `Sandbox` protocol, and the messages to them."""
