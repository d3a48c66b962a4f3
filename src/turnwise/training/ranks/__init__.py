"""Training on several ranks: processes of one machine that hold the models in rows (FSDP2) behind one `Trainer`."""
