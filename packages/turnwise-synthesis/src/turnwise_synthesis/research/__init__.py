"""Deep research: a question, many searches, notes in a memory, a report in sections whose citations are checked."""
