"""What a task asks for, and how much of it a visit has done: from answer, address and state, never from a page."""
