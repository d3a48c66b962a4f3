"""Bugs for real Python repositories: edits of source text, screened by fork, confirmed in a fresh process.

edits/      pure functions from a function's source text to edited text, one row of a table per kind
candidates  which edits to try, in which order: a pure function of the sources, the kinds and a seed
screening   every candidate in a fork of one process that has collected the tests (`guest/`)
confirming  the whole selection on the really edited tree, in a fresh process
combining   several confirmed bugs of a file or module as one
issues      what the user reports, from a failing test
making      all of it for one repository, with a ledger of what was dropped and why
"""
