"""Two-player games with exact measures of how well they are played."""
