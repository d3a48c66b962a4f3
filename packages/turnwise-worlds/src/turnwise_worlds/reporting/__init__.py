"""Sections that the package adds to report.html."""
