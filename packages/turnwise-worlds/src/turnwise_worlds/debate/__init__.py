"""Two debaters who quote dated lines before a judge who cannot read them."""
