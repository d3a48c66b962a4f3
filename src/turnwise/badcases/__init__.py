"""Why attempts failed: what each did, where it first left what would have succeeded, and how often that happens."""
