"""What runs under vLLM's own interpreter, which does not have Turnwise: the standard library, torch and vLLM only."""
