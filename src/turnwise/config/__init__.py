"""The recipe: one frozen section per file, loading, overrides and the resolved tree. Imports without torch."""
