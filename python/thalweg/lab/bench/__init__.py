"""Benchmarks: training steps (ddp), GPU tensors (gpu, gpu_allreduce), accuracy under loss
(lossy_convergence)."""
