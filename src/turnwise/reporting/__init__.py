"""What a person sees of a run: the live display in the terminal and report.html."""
