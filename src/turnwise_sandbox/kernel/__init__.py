"""The kernel's own walls, one file per wall: system calls, seccomp, Landlock, limits, cgroups, root file system, file
access, probe.

Standard library only, so that a preloaded interpreter imports it in a few milliseconds. Nothing here knows of programs,
sessions or levels of isolation except `probe`, which finds out what the machine allows."""
