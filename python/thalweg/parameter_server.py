"""Training by a parameter server (`thalweg ps`, docs/parameter-server.md): ASP, SSP or BSP, as the server's mode is."""
import torch

from thalweg._ps import Client


class ParameterServer:
    """Trains a model whose parameters a server holds and steps; no process group is needed.

        trainer = ParameterServer(model, "10.0.0.1:7900", worker=2)
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()

    All workers start from the parameters of whoever comes first. After a step the model has what the server has then:
    in the mode `asynchronous` (ASP) at once; in `stale` (SSP) when no worker is further behind than `staleness`; in
    `synchronous` (BSP) when all have pushed. The optimizer and its rate are the server's. Parameters are float32 on the
    CPU; buffers (of batch normalization) stay this worker's. A parameter without a gradient is pulled only.
    """

    def __init__(self, model, server, worker, *, timeout=60.0):
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for name, parameter in self._parameters.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise TypeError(f"{name}: {parameter.dtype} on {parameter.device}; a server takes float32 on the CPU")
        self._client = Client(server, worker, timeout)
        self.iteration = 0
        for name, parameter in self._parameters.items():
            self._receive(self._client.init, name, parameter)

    @staticmethod
    def _receive(call, name, parameter):
        values = parameter.detach().contiguous().reshape(-1)
        call(name, values.numpy())
        parameter.data.copy_(values.view_as(parameter))

    def step(self):
        """After backward: pushes all gradients, last layers first, and pulls all parameters."""
        for name, parameter in reversed(self._parameters.items()):
            if parameter.grad is not None:
                self._client.push(name, parameter.grad.contiguous().reshape(-1).numpy())
                parameter.grad = None
        for name, parameter in self._parameters.items():
            self._receive(self._client.pull, name, parameter)
        self.iteration += 1
