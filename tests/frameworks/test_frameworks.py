"""The communicator with arrays of JAX and TensorFlow, and Keras: `make test-frameworks`, in an environment of its own."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

JAX = """
import jax.numpy as jnp
import thalweg
rank, size = thalweg.rank(), thalweg.size()
for kind in (jnp.float32, jnp.bfloat16, jnp.int32):
    total = thalweg.allreduce(jnp.arange(6).reshape(2, 3).astype(kind) * (rank + 1))
    assert isinstance(total, jnp.ndarray) and total.dtype == kind, type(total)
    assert (total == jnp.arange(6).reshape(2, 3) * 3).all(), total
assert (thalweg.broadcast(jnp.full(4, rank), root=1) == 1).all()
print("fine", flush=True)
"""
TENSORFLOW = """
import tensorflow as tf
import thalweg
rank = thalweg.rank()
for kind in (tf.float32, tf.bfloat16, tf.int32):
    total = thalweg.allreduce(tf.cast(tf.range(6), kind) * tf.cast(rank + 1, kind))
    assert isinstance(total, tf.Tensor) and total.dtype == kind, total
    assert (total.numpy().astype("float32") == [0, 3, 6, 9, 12, 15]).all(), total
assert thalweg.all_gather(tf.constant([rank])).numpy().tolist() == [[0], [1]]
print("fine", flush=True)
"""
KERAS = """
import keras
import numpy as np
import thalweg
import thalweg.keras
rank = thalweg.rank()
keras.utils.set_random_seed(rank)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(optimizer=thalweg.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
thalweg.keras.broadcast_variables(model)
inputs = np.random.default_rng(rank).normal(size=(64, 4)).astype("float32")
before = model.evaluate(inputs, inputs[:, :1], verbose=0)
model.fit(inputs, inputs[:, :1], batch_size=16, epochs=5, verbose=0)
assert model.evaluate(inputs, inputs[:, :1], verbose=0) < 0.7 * before
weights = np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])
assert (thalweg.all_gather(weights) == weights).all()  # replicas are equal, though their data were not
print("fine", flush=True)
"""


@pytest.mark.parametrize("program", [JAX, TENSORFLOW, KERAS], ids=["jax", "tensorflow", "keras"])
def test_two_ranks(program):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0", "JAX_PLATFORMS": "cpu",
                   "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run([ROOT / "build/release/thalweg", "run", "-n", "2", "--", sys.executable, "-c", program],
                          env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr
