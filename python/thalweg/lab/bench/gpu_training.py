"""Training steps of a model of thalweg.lab.record_models with DistributedDataParallel, on random inputs."""
import torch
from torch.nn.parallel import DistributedDataParallel


def training(name, device, group):
    """Returns a function that trains one step; with `group` None without communication."""
    from thalweg.lab.record_models import RECIPES

    torch.manual_seed(0)
    recipe = RECIPES[name]
    with device:
        model, inputs = recipe.build(), recipe.inputs(recipe.batch)
        loss = recipe.loss(recipe.batch)
    if group is not None:
        model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None,
                                        process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss(model(*inputs)).backward()
        optimizer.step()
    return step
