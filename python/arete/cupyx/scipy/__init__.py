"""SciPy's functions for what image filters, signal programs and solvers use."""
