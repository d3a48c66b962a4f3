"""Games of two players, with exact measures of how well they are played."""
