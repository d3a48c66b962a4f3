"""What runs in the jail beside the browser."""
