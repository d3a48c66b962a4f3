"""The credit laboratory: small worlds in which the true advantage of every turn is known, to measure credit methods."""
