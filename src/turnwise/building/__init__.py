"""A recipe is resolved here, once: which rows, models and corrections it means, and the objects that train."""
