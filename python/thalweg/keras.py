"""DistributedOptimizer for Keras 3 with TensorFlow: data-parallel training, one process per rank.

    model.compile(optimizer=thalweg.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss=…)
    thalweg.keras.broadcast_variables(model)      # all ranks start from rank 0's variables
    model.fit(…)                                  # every rank with its share of the data

The ranks communicate by thalweg.arrays.
"""
import keras
import numpy as np
import tensorflow as tf

from thalweg import arrays


def _averaged(gradients):
    """Returns the averages of the gradients over the ranks.

    One TensorFlow operation reduces all gradients, so that their order is the same on all ranks.
    """
    def average(*values):
        return [np.asarray(arrays.allreduce(value, op="mean")) for value in values]

    averages = tf.numpy_function(average, gradients, [gradient.dtype for gradient in gradients])
    for average_of, gradient in zip(averages, gradients):
        average_of.set_shape(gradient.shape)
    return averages


def DistributedOptimizer(optimizer):  # noqa: N802  as Horovod names it
    """Returns an optimizer that averages gradients over the ranks before it applies them.

    It has the class and the settings of the one that is given.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"keras: its backend is {keras.backend.backend()!r}; 'tensorflow' is "
                         "allowed")
    base = type(optimizer)

    def apply(self, grads, trainable_variables=None):
        # A variable that the loss does not depend on has no gradient on any rank.
        given = [i for i, gradient in enumerate(grads) if gradient is not None]
        averages = list(grads)
        for i, average in zip(given, _averaged([tf.convert_to_tensor(grads[i]) for i in given])):
            averages[i] = average
        return base.apply(self, averages, trainable_variables)

    return type(base.__name__, (base,), {"apply": apply}).from_config(optimizer.get_config())


def broadcast_variables(model, root=0):
    """Copies the root's variables to all ranks. The model must have been built."""
    for variable in model.variables:
        variable.assign(arrays.broadcast(variable.numpy(), root))
