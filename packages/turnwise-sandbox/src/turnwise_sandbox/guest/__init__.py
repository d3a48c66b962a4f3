"""Code that runs inside the sandbox, in the processes of the untrusted code. Standard library only."""
