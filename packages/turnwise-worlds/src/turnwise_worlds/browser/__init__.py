"""A real Chromium, kept in a jail, for pages that episodes operate."""
