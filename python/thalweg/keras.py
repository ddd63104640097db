"""DistributedOptimizer for Keras 3 with TensorFlow: data-parallel training, a process a rank (thalweg.arrays).

    model.compile(optimizer=thalweg.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss=…)
    thalweg.keras.broadcast_variables(model)          # all ranks begin with rank 0's
    model.fit(…)                                      # each with its share of the data
"""
import keras
import numpy as np
import tensorflow as tf

from thalweg import arrays


def _averaged(gradients):
    """Over the ranks: all of them in one call, so that their order is the same on all ranks."""
    def average(*values):
        return [np.asarray(arrays.allreduce(value, op="mean")) for value in values]

    averages = tf.numpy_function(average, gradients, [gradient.dtype for gradient in gradients])
    for average_of, gradient in zip(averages, gradients):
        average_of.set_shape(gradient.shape)
    return averages


def DistributedOptimizer(optimizer):  # noqa: N802  Horovod's name
    """An optimizer of the same class and settings that averages gradients over the ranks before it applies them."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"keras: its backend is {keras.backend.backend()!r}; 'tensorflow' is allowed")
    base = type(optimizer)

    def apply(self, grads, trainable_variables=None):
        # A variable that the loss does not depend on has none, on any rank.
        given = [i for i, gradient in enumerate(grads) if gradient is not None]
        averages = list(grads)
        for i, average in zip(given, _averaged([tf.convert_to_tensor(grads[i]) for i in given])):
            averages[i] = average
        return base.apply(self, averages, trainable_variables)

    return type(base.__name__, (base,), {"apply": apply}).from_config(optimizer.get_config())


def broadcast_variables(model, root=0):
    """Gives all ranks the root's variables. The model must be built."""
    for variable in model.variables:
        variable.assign(arrays.broadcast(variable.numpy(), root))
