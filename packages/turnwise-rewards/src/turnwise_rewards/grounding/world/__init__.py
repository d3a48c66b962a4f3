"""Reports on generated pages, some of which contradict each other."""
