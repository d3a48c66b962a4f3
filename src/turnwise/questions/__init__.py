"""Questions to judges: their forms, the prompt with what is judged in a fence, and how a reply becomes a verdict."""
