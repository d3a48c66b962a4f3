"""Verl-Tool's tool server protocol: spoken to other people's servers, and served."""
