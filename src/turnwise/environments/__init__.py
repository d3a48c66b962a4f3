"""Environment families: worlds in which an agent acts, one folder each, and the tool environment that most of them
build on."""
