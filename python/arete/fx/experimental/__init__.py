"""Names of torch.fx.experimental that programs use."""
