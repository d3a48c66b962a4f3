"""Ways to operate the site: as text without a socket, over HTTP on loopback, in a browser."""
