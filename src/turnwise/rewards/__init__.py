"""Pure functions from replies and gold answers to rewards, each with cases that must pass and must fail."""
