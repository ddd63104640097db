"""The native module: the backend of torch.distributed."""
import torch
import torch.distributed as dist

version: str
torch_version: str

class Backend(dist.Backend):  # type: ignore[misc]
    def __init__(self, store: dist.Store, rank: int, size: int, timeout_s: float, *, transport: str, scheme: str,
                 topology: str, line_rate_gbps: float) -> None: ...
    def reduce_gradient(self, tensor: torch.Tensor, *, mean: bool, loss_bound: float, result_loss_bound: float,
                        dlcp: bool, priority: int, residual: torch.Tensor | None = None) -> dist.Work: ...
    def shutdown(self) -> None: ...
    def perform_nocolor_split(self, device: torch.device) -> None: ...
