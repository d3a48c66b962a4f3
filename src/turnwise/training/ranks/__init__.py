"""Training on several ranks: processes that hold the models in rows (FSDP2) behind one `Trainer`."""
