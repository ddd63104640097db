"""Data-parallel training with lost gradient segments: n workers in one process, so that what a loss does to training
can be seen without a network.

What a lost segment means is DLCP's appendix A. Each worker's gradient goes to a server in segments; the server averages
over the contributions that arrived, and sends the average back; a worker that does not get a segment of it keeps its own
gradient there, and so does every worker if nobody's arrived. A segment is what one packet of the transport holds: 1,400
bytes less one element, which is the count of contributions; segments do not span tensors.

Every segment is lost with the same probability, on its own, contributions by `fraction` and averages by
`result_fraction`. The transport's bound is one on each tensor, rounded down to whole segments: it never loses more than
this on average, and less of small tensors.
"""
import copy
from dataclasses import dataclass

import torch

SEGMENT_BYTES = 1400
LAYERS = ("front", "middle", "back")  # thirds of the layers, by their number; a layer is a module with parameters
MAGNITUDES = ("small", "medium", "large")  # thirds of the segments of a gradient, by their mean magnitude
WHERE = ("all", *LAYERS, *MAGNITUDES)


@dataclass(frozen=True)
class Loss:
    """Which segments get lost, and how many of them."""

    fraction: float = 0.0  # of the contributions, in [0, 1)
    where: str = "all"  # among which: one of WHERE
    result_fraction: float | None = None  # of the averages, in [0, 1); None: half of the contributions'
    # What an average lacks is made up for: every worker adds its contribution less the average, where the average is
    # not one over all, to its next gradient.
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
        return self.fraction / 2 if self.result_fraction is None else self.result_fraction


class Segments:
    """How the parameters of a model, laid out one after the other, are cut into segments."""

    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        types = {p.dtype for p in self.parameters}
        if len(types) != 1 or not types.copy().pop().is_floating_point:
            raise ValueError(f"model: its trainable parameters are of {sorted(map(str, types)) or 'no type'}; "
                             "one floating-point type is allowed")
        layer_of = {}
        layers = 0
        for module in model.modules():
            own = [p for p in module.parameters(recurse=False) if p.requires_grad and p not in layer_of]
            layer_of.update(dict.fromkeys(own, layers))
            layers += bool(own)
        if layers < 3:
            raise ValueError(f"model: {layers} layers with trainable parameters; at least 3 are needed")
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
        """Which segments of the gradients (a row each) are in the class `where`."""
        shape = (len(gradients), self.count)
        if where == "all":
            return torch.ones(shape, dtype=torch.bool)
        if where in LAYERS:
            return (self.third_of == LAYERS.index(where)).expand(shape)
        sums = torch.zeros(shape, dtype=gradients.dtype).index_add_(1, self.segment_of, gradients.abs())
        place = (sums / self.sizes).argsort(dim=1).argsort(dim=1)
        return place * 3 // self.count == MAGNITUDES.index(where)


class LossyAverage:
    """Averages gradients, a row a worker, and loses segments on the way."""

    def __init__(self, segments, loss, generator):
        self._segments, self._loss, self._generator = segments, loss, generator
        self._missing = None  # what error feedback adds to the next gradients
        self.lost = self.sent = 0  # contributions, in segments

    def _arrive(self, gradients, fraction):
        """[row, segment]: which of the gradients' segments get through."""
        drawn = torch.rand(len(gradients), self._segments.count, generator=self._generator)
        return (drawn >= fraction) | ~self._segments.exposed(gradients, self._loss.where)

    def __call__(self, gradients):
        """In place: every row becomes what its worker applies."""
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
    """Replicas of a model, each with its optimizer, that train together. Gradients are rows of one tensor."""

    def __init__(self, model, make_optimizer, count, loss, generator):
        self.models = [copy.deepcopy(model) for _ in range(count)]
        segments = Segments(self.models[0])
        self._gradients = torch.zeros(count, segments.elements, dtype=segments.parameters[0].dtype)
        self.average = LossyAverage(segments, loss, generator)
        self._optimizers = []
        for replica, row in zip(self.models, self._gradients):
            parameters = [p for p in replica.parameters() if p.requires_grad]
            for parameter, part in zip(parameters, row.split([p.numel() for p in parameters])):
                parameter.grad = part.view_as(parameter)
            self._optimizers.append(make_optimizer(parameters))

    def step(self, loss_of, batches):
        """One iteration; `batches` has one for each worker."""
        self._gradients.zero_()
        for model, batch in zip(self.models, batches):
            model.train()
            loss_of(model, batch).backward()
        self.average(self._gradients)
        for optimizer in self._optimizers:
            optimizer.step()
