"""Tools from Model Context Protocol servers: the server process, a session with it, its tools and results as text."""
