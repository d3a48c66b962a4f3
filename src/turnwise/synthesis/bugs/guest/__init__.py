"""What runs inside the sandbox, beside the tests of a package. Standard library and pytest only."""
