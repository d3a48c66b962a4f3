"""Code that runs inside the sandbox when tests are graded: sent there as source text, standard library only."""
