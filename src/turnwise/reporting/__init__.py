"""Show a run to people: progress in the terminal, tables, and report.html."""
