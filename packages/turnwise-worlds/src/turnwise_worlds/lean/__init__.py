"""Theorems proved in Lean, by the JSON of its REPL: for those who have Lean. Tested against a stand-in only."""
