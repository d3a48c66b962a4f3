"""Code that runs under vLLM's own interpreter, which lacks Turnwise: it uses the standard library, torch and vLLM
only."""
