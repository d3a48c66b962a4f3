"""Groups from draw to fate: where tasks come from, one RL step, the loop around the gate, redo after a crash."""
