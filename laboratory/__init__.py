"""The credit laboratory: small worlds in which the true advantage of every turn is known, and what credit methods make
of it."""
