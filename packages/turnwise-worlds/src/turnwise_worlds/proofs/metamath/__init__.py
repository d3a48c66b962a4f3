"""Second opinions: kernel proofs as Metamath proofs, a small verifier of our own, and Debian's `metamath`."""
