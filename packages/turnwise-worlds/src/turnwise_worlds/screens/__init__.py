"""Small screens that are operated by clicks: buttons, a form, a list; seen as pictures, as text, or both."""
