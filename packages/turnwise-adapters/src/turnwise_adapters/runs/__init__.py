"""A server of tools under Verl-Tool's protocol."""
