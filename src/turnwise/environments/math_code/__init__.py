"""Mathematics with a Python interpreter (ReTool): generated problems, reasoning-gym, and published data sets."""
