"""A simulated phone and desktop, operated by AndroidWorld's and OSWorld's actions."""
