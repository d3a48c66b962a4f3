"""Tasks and instances in the layout of Harbor."""
