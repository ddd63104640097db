"""Data-parallel training that loses gradient segments, with all workers in one process.

It shows what a loss does to training, without a network.

What a lost segment means follows DLCP, appendix A. Every worker sends its gradient to a server in
segments. The server averages the contributions that arrived, and sends the average back. A worker
that does not receive a segment of the average keeps its own gradient there. So do all workers where
no contribution arrived. A segment is what one packet of the transport holds: 1,400 bytes less one
element, which is the count of contributions. A segment never spans two tensors.

Every segment is lost independently with the same probability: `fraction` for contributions,
`result_fraction` for averages. The transport itself bounds the loss of each tensor, rounded down to
whole segments. It therefore never loses more than this simulation does on average, and it loses
less of small tensors.
"""
import copy
from dataclasses import dataclass

import torch

SEGMENT_BYTES = 1400
LAYERS = ("front", "middle", "back")  # thirds of the layers, that is of modules with parameters
MAGNITUDES = ("small", "medium", "large")  # thirds of a gradient's segments, by mean magnitude
WHERE = ("all", *LAYERS, *MAGNITUDES)


@dataclass(frozen=True)
class Loss:
    """Which segments get lost, and how many of them."""

    fraction: float = 0.0  # the probability to lose a contribution, in [0, 1)
    where: str = "all"  # which segments can get lost: one of WHERE
    # The probability to lose an average, in [0, 1). None: half of `fraction`.
    result_fraction: float | None = None
    # Where an average lacks contributions, every worker adds its contribution less the average to
    # its next gradient.
    error_feedback: bool = False

    def __post_init__(self):
        if self.where not in WHERE:
            raise ValueError(f"where: {self.where!r}; {', '.join(WHERE)} are allowed")
        for name in ("fraction", "result_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name}: {value}; from 0 to below 1 is allowed")

    @property
    def of_results(self):
        """The probability to lose an average."""
        return self.fraction / 2 if self.result_fraction is None else self.result_fraction


class Segments:
    """How the trainable parameters of a model, one after the other, are cut into segments."""

    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        types = {p.dtype for p in self.parameters}
        if len(types) != 1 or not types.copy().pop().is_floating_point:
            raise ValueError("model: its trainable parameters are of "
                             f"{sorted(map(str, types)) or 'no type'}; one floating-point type is "
                             "allowed")
        layer_of = {}
        layers = 0
        for module in model.modules():
            own = [p for p in module.parameters(recurse=False)
                   if p.requires_grad and p not in layer_of]
            layer_of.update(dict.fromkeys(own, layers))
            layers += bool(own)
        if layers < 3:
            raise ValueError(f"model: {layers} layers with trainable parameters; at least 3 are "
                             "needed")
        most = SEGMENT_BYTES // self.parameters[0].element_size() - 1
        segment_of, third_of = [], []
        for parameter in self.parameters:
            elements = torch.arange(parameter.numel())
            segment_of.append(len(third_of) + elements // most)
            third_of += [layer_of[parameter] * 3 // layers] * (-(-parameter.numel() // most))
        self.segment_of = torch.cat(segment_of)  # [element]
        self.third_of = torch.tensor(third_of)  # [segment]: 0 front, 1 middle, 2 back
        self.sizes = torch.bincount(self.segment_of)
        self.elements, self.count = len(self.segment_of), len(third_of)

    def exposed(self, gradients, where):
        """Returns [row, segment]: whether a segment of a gradient is in the class `where`.

        Each row of `gradients` is one gradient.
        """
        shape = (len(gradients), self.count)
        if where == "all":
            return torch.ones(shape, dtype=torch.bool)
        if where in LAYERS:
            return (self.third_of == LAYERS.index(where)).expand(shape)
        sums = torch.zeros(shape, dtype=gradients.dtype)
        sums.index_add_(1, self.segment_of, gradients.abs())
        place = (sums / self.sizes).argsort(dim=1).argsort(dim=1)
        return place * 3 // self.count == MAGNITUDES.index(where)


class LossyAverage:
    """Averages gradients, one row per worker, and loses segments of them."""

    def __init__(self, segments, loss, generator):
        self._segments, self._loss, self._generator = segments, loss, generator
        self._missing = None  # what error feedback adds to the next gradients
        self.lost = self.sent = 0  # segments of contributions

    def _arrive(self, gradients, fraction):
        """Draws which segments arrive: [row, segment]."""
        drawn = torch.rand(len(gradients), self._segments.count, generator=self._generator)
        return (drawn >= fraction) | ~self._segments.exposed(gradients, self._loss.where)

    def __call__(self, gradients):
        """Replaces every row, in place, by the gradient that its worker applies."""
        if self._missing is not None:
            gradients += self._missing
        workers, of = len(gradients), self._segments.segment_of
        arrived = self._arrive(gradients, self._loss.fraction)
        self.sent += arrived.numel()
        self.lost += arrived.numel() - int(arrived.sum())
        count = arrived.sum(0)
        average = (gradients * arrived[:, of]).sum(0) / count.clamp(min=1)[of]
        back = self._arrive(average.expand(workers, -1), self._loss.of_results) & (count > 0)
        if self._loss.error_feedback:
            self._missing = (gradients - average) * (back & (count < workers))[:, of]
        gradients.copy_(torch.where(back[:, of], average, gradients))


class Workers:
    """Replicas of a model, each with its own optimizer, that train together.

    Their gradients are the rows of one tensor.
    """

    def __init__(self, model, make_optimizer, count, loss, generator):
        self.models = [copy.deepcopy(model) for _ in range(count)]
        segments = Segments(self.models[0])
        self._gradients = torch.zeros(count, segments.elements, dtype=segments.parameters[0].dtype)
        self.average = LossyAverage(segments, loss, generator)
        self._optimizers = []
        for replica, row in zip(self.models, self._gradients):
            parameters = [p for p in replica.parameters() if p.requires_grad]
            parts = row.split([p.numel() for p in parameters])
            for parameter, part in zip(parameters, parts):
                parameter.grad = part.view_as(parameter)
            self._optimizers.append(make_optimizer(parameters))

    def step(self, loss_of, batches):
        """Trains one iteration. `batches` has one batch for each worker."""
        self._gradients.zero_()
        for model, batch in zip(self.models, batches):
            model.train()
            loss_of(model, batch).backward()
        self.average(self._gradients)
        for optimizer in self._optimizers:
            optimizer.step()
