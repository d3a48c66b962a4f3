"""The card of a recipe: how far a number from its held-out tasks can be believed, and for what, measured."""
