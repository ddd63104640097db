"""Benchmarks: training steps (ddp), GPU tensors (gpu), accuracy under loss (lossy_convergence)."""
