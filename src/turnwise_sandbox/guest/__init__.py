"""What runs inside the sandbox, beside or below the code that is not trusted. Standard library only."""
