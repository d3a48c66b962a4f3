"""MiniWoB++: small tasks on real pages in a real browser."""
