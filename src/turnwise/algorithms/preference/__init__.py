"""Learning from demonstrations, pairs and teachers: selection and losses as pure functions."""
