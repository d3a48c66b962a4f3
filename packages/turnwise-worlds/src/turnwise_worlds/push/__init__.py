"""A hand on a table: it reaches a goal, or pushes a block there, around a wall if need be."""
