"""Messages to token ids and back; the tokenizers that models from scratch use."""
