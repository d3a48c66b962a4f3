"""Tasks over the tools of Model Context Protocol servers, and environments offered as such a server."""
