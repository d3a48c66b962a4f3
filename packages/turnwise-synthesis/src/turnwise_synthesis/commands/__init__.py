"""Commands that the package adds to `turnwise`."""
