"""Inverted questions, hard to find and easy to check: their construction, their evaluation against effort, and the
published file's layout (BrowseComp, arXiv 2504.12516)."""
