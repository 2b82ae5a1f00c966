"""Instruction counts by Valgrind."""
