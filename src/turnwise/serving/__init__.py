"""Episodes that are driven from outside: by clients of a server, trainers of other packages, scripts."""
