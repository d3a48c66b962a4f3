"""Verl-Tool's tool server protocol, as a client of other people's servers and as a server."""
