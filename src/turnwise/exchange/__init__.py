"""Exchange data with others: task rows of verl, TRL and SkyRL, Harbor's task folders, transcripts for SFT and
Inspect."""
