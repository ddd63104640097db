"""Training with a parameter server (`thalweg ps`, docs/parameter-server.md)."""
import torch

from thalweg._ps import Client


class ParameterServer:
    """Trains a model whose parameters a server holds and updates. Needs no process group.

        trainer = ParameterServer(model, "10.0.0.1:7900", worker=2)
        for batch in data:
            loss(model(batch)).backward()
            trainer.step()

    All workers start from the parameters of the worker that connects first. After a step the model
    has the server's parameters. When step() returns depends on the server's mode: in `asynchronous`
    (ASP) at once; in `stale` (SSP) as soon as no worker is more than `staleness` iterations behind;
    in `synchronous` (BSP) when all workers have pushed. The server has the optimizer and its
    learning rate. Parameters must be float32 on the CPU. Buffers, as those of batch normalization,
    are not shared. A parameter without a gradient is only pulled.
    """

    def __init__(self, model, server, worker, *, timeout=60.0):
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for name, parameter in self._parameters.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise TypeError(f"{name}: {parameter.dtype} on {parameter.device}; a server takes "
                                "float32 on the CPU")
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
        """Pushes all gradients, last layers first, and pulls all parameters.

        Call this after backward().
        """
        for name, parameter in reversed(self._parameters.items()):
            if parameter.grad is not None:
                self._client.push(name, parameter.grad.contiguous().reshape(-1).numpy())
                parameter.grad = None
        for name, parameter in self._parameters.items():
            self._receive(self._client.pull, name, parameter)
        self.iteration += 1
