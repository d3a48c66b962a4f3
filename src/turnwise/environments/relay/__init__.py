"""Two agents that each know half of what is asked, and talk."""
