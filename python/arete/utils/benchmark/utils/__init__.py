"""The parts of arete.utils.benchmark, in the modules where torch has them."""
