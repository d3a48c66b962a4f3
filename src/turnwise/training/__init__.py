"""The policy, its forward pass, the optimizer step, supervised warm-up."""
