"""Programs that run inside the sandbox, beside the tests of a package. Standard library and pytest only."""
