"""The site itself: what it holds, and one pure function from a state and a request to a state and a page."""
