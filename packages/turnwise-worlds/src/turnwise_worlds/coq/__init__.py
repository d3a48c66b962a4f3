"""Theorems proved in Coq: coqtop in the sandbox, one checked tactic at a time, verdicts of coqc and coqchk."""
