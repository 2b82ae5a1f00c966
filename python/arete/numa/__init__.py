"""Which processors a process runs on: `arete run --numa-binding` decides that."""
