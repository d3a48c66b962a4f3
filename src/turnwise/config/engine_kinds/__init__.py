"""What each kind of engine is and can be told: one row, one file each, without torch. `engines/` builds them."""
