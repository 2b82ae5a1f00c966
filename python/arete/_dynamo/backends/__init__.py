"""Backends of programs for arete.compile(backend=...)."""
