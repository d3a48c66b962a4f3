"""Episodes driven from outside: by clients of a server, trainers in other packages, scripts."""
