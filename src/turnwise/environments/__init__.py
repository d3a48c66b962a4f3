"""Environment families: worlds an agent acts in, one folder each, and the tool environment most of them build on."""
