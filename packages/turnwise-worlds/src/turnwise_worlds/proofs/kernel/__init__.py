"""What a proof is, and what is accepted as one. Imports nothing but the standard library."""
