"""Takes groups from draw to outcome: where tasks come from, one RL step, the loop around the gate, redo after a
crash."""
