"""Research over the user's own corpus: citations are checked by a judge, or as quotations."""
