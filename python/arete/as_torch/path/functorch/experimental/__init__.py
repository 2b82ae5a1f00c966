"""The older address of branches and loops that belong to programs."""
