"""Pictures from outside: read, checked, kept by digest."""
