"""Research on generated pages, whose truth is known: every citation is checked exactly."""
