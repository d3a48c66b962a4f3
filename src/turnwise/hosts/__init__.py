"""Where the processes of a run are: on this machine, or on the nodes of a Ray cluster."""
