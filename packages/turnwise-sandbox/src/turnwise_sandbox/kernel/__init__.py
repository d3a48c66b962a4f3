"""The kernel's means of isolation, one per file: seccomp, Landlock, limits, cgroups, root file system, file access.

`syscalls` makes the system calls and `probe` tests which of the means work on this machine. Standard library only, so
that a preloaded interpreter imports the package in a few milliseconds."""
