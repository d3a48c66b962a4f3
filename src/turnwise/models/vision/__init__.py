"""Vision-language models: how each family writes a picture into a prompt, and what its tower makes of it."""
