"""Formal questions: a graph of facts, questions over it that are expanded layer by layer, their obfuscation, and the
expander as an agent (WebShaper, arXiv 2507.15061; WebSailor, arXiv 2507.02592)."""
