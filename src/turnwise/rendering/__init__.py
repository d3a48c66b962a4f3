"""Converts messages to token ids and back; tokenizers for models trained from scratch."""
