"""Changes of graphs."""
