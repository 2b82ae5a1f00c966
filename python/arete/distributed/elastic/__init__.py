"""What programs started by launchers ask of PyTorch's elastic package: `multiprocessing.errors.record`."""
