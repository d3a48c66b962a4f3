"""What runs inside the sandbox when tests are graded: standard library only, shipped as source text, never imported by
turnwise itself."""
