"""Exchange data: task rows of verl, TRL and SkyRL, Harbor's task folders, transcripts for SFT and for Inspect."""
