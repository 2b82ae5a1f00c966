"""What changes of graphs have in common."""
