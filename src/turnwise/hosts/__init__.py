"""Where processes of a run live: this machine, or the nodes of a Ray cluster."""
