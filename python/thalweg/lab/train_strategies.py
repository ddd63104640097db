"""Trains a small network by several synchronization strategies, with all workers in this process.

It shows how accurate each strategy becomes and how soon. `thalweg reproduce` calls it with the
strategies of its simulations and with their simulated speeds (docs/experiment-format.md):

    python train_strategies.py < request.json
        {"seeds": 5, "iterations": 300, "base": 0, "points": [point, …]}
        point   workers, pace_ms, worker_pace_ms[], and those of the following that the strategy
                has (a ? marks keys that may be missing):
                period[][][]    for each iteration, the groups of workers that average
                swa?            true: weight averages are tested
                gossip          true
                servers         true: a parameter server
                staleness?      null: unbounded

It answers with a list of results, one per point. Accuracies are in per cent:

    best_accuracy, best_accuracy_spread    mean and standard deviation over the seeds
    target_accuracy                        the lowest best accuracy among the seeds of the point
                                           `base`, less TARGET_SLACK
    iterations_to_target                   mean over the seeds; null if a seed does not reach it
    seconds_to_target                      the same in simulated seconds
    accuracy[], at_iteration[]             mean accuracy over the seeds, and when it was measured

The network has layers of 64, 32 and 10 units and learns handwritten digits (data/digits.csv.gz) by
SGD with momentum. Every worker has its own part of the images. Without a `period` all workers
average with all (BSP). A worker of a parameter server computes with the parameters that it pulled
last, and takes as long as the simulator says, so staleness comes from simulated speeds. The test
uses the mean of all workers' models. For DS-Sync it uses the mean of their weight averages (SWA),
as the paper does. Needs only numpy.
"""
import gzip
import heapq
import json
import os
import sys
from pathlib import Path

# The arrays are too small for several threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np  # noqa: E402

DIGITS = Path(__file__).with_name("data") / "digits.csv.gz"
TEST_EVERY = 2      # every second image is for the test
HIDDEN = 32
BATCH = 8           # images per worker and iteration
RATE, MOMENTUM = 0.1, 0.9
WARM_UP = 30        # iterations in which the learning rate grows
SWA_DECAY = 0.9
LOOK_EVERY = 5      # iterations between two measurements of the accuracy
TARGET_SLACK = 0.5  # per cent: two measurements of one model's accuracy differ by about this much
JITTER = 0.1        # relative, of a worker's pace: workers of a server must not run in lockstep


def load():
    """Returns the images to learn from and those for the test, each as (images, digits)."""
    with gzip.open(DIGITS, "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    rows = rows[np.random.default_rng(1).permutation(len(rows))]
    images, digits = rows[:, :64] / 16, rows[:, 64].astype(int)
    test = np.arange(len(rows)) % TEST_EVERY == 0
    return (images[~test], digits[~test]), (images[test], digits[test])


class Models:
    """The networks of all workers, in arrays whose first dimension is the worker."""

    def __init__(self, parameters):
        self.parameters = parameters

    @classmethod
    def alike(cls, workers, random):
        """Makes one network, the same for all workers."""
        one = [random.normal(0, 1 / np.sqrt(64), (64, HIDDEN)), np.zeros((1, HIDDEN)),
               random.normal(0, 1 / np.sqrt(HIDDEN), (HIDDEN, 10)), np.zeros((1, 10))]
        return cls([np.repeat(p[None].astype(np.float32), workers, axis=0) for p in one])

    def gradients(self, images, digits):
        """Returns the gradients of the mean cross entropy.

        The shapes are images[worker, image, 64] and digits[worker, image].
        """
        w1, b1, w2, b2 = self.parameters
        hidden = images @ w1 + b1
        active = np.maximum(hidden, 0)
        scores = active @ w2 + b2
        scores = np.exp(scores - scores.max(2, keepdims=True))
        error = scores / scores.sum(2, keepdims=True)
        right = digits[:, :, None]
        np.put_along_axis(error, right, np.take_along_axis(error, right, 2) - 1, 2)
        error /= images.shape[1]
        back = error @ w2.transpose(0, 2, 1) * (hidden > 0)
        return [images.transpose(0, 2, 1) @ back, back.sum(1, keepdims=True),
                active.transpose(0, 2, 1) @ error, error.sum(1, keepdims=True)]

    def mean_accuracy(self, test):
        """Returns the accuracy of the mean of all models, in per cent."""
        images, digits = test
        w1, b1, w2, b2 = (p.mean(0) for p in self.parameters)
        scores = np.maximum(images @ w1 + b1, 0) @ w2 + b2
        return 100 * float((scores.argmax(1) == digits).mean())


class Batches:
    """The batches of all workers, each from the worker's own part of the images."""

    def __init__(self, workers, images, digits, random):
        self._random = random
        parts = np.array_split(random.permutation(len(images)), workers)
        size = min(len(part) for part in parts)
        self._order = np.stack([part[:size] for part in parts])
        self._images, self._digits = images, digits
        self._next = [0] * workers

    def of(self, worker):
        """Returns the indices of the images in a worker's next batch."""
        first = self._next[worker]
        if first == 0:
            self._random.shuffle(self._order[worker])
        last = first + BATCH
        self._next[worker] = last if last + BATCH <= self._order.shape[1] else 0
        return self._order[worker, first:last]

    def next(self, workers):
        """Returns the next batches of these workers: images and digits [worker, image, …]."""
        some = np.stack([self.of(worker) for worker in workers])
        return self._images[some], self._digits[some]


def rate_at(iteration):
    return RATE * min(1, (iteration + 1) / WARM_UP)


def swa_decay_at(iteration):
    """Returns the weight that a weight average of so many models keeps when the next one is added.

    It is that of a running mean at first, so that the initial parameters have no weight.
    """
    return min(SWA_DECAY, iteration / (iteration + 1))


def averaged(parameters, iteration, point):
    """Returns the parameters of all workers after the exchange of this iteration."""
    workers = point["workers"]
    if point.get("gossip"):
        distance = 1 << (iteration % max(1, (workers - 1).bit_length()))
        return [(p + np.roll(p, distance, axis=0)) / 2 for p in parameters]
    mixing = np.zeros((workers, workers), np.float32)
    for group in point["period"][iteration % len(point["period"])]:
        mixing[np.ix_(group, group)] = 1 / len(group)
    return [np.tensordot(mixing, p, 1) for p in parameters]


def train_in_step(point, iterations, seed, data, test):
    """Trains by BSP, gossip, local SGD or DS-Sync, where all workers do each iteration together.

    Returns a list of (iteration, ms, accuracy).
    """
    random = np.random.default_rng(seed)
    models = Models.alike(point["workers"], random)
    batches = Batches(point["workers"], *data, random)
    speed = [np.zeros_like(p) for p in models.parameters]
    everyone = range(point["workers"])
    together = "period" not in point and not point.get("gossip")
    swa = Models([p.copy() for p in models.parameters]) if point.get("swa") else None
    seen = []
    for iteration in range(iterations):
        gradients = models.gradients(*batches.next(everyone))
        if together:
            gradients = [g.mean(0, keepdims=True) for g in gradients]
        for p, v, g in zip(models.parameters, speed, gradients):
            v *= MOMENTUM
            v += g
            p -= rate_at(iteration) * v
        if not together:
            models.parameters = averaged(models.parameters, iteration, point)
        if swa:
            for mean, p in zip(swa.parameters, models.parameters):
                mean += (1 - swa_decay_at(iteration)) * (p - mean)
        if (iteration + 1) % LOOK_EVERY == 0:
            seen.append((iteration + 1, (iteration + 1) * point["pace_ms"],
                         (swa or models).mean_accuracy(test)))
    return seen


def train_by_server(point, iterations, seed, data, test):
    """Trains by ASP or SSP, where every worker pushes and pulls as soon as it has computed.

    Returns a list of (iteration, ms, accuracy).
    """
    random = np.random.default_rng(seed)
    workers = point["workers"]
    pulled = Models.alike(workers, random)  # the parameters that each worker computes with
    batches = Batches(workers, *data, random)
    server = [p[0].copy() for p in pulled.parameters]
    speed = [np.zeros_like(p) for p in server]
    pushes, pending, seen = [0] * workers, [], []
    staleness = point.get("staleness")
    held = []

    def begin(worker, now):
        for p, s in zip(pulled.parameters, server):
            p[worker] = s
        one = Models([p[worker:worker + 1] for p in pulled.parameters])
        gradients = [g[0] for g in one.gradients(*batches.next([worker]))]
        takes = point["worker_pace_ms"][worker] * random.lognormal(0, JITTER)
        heapq.heappush(pending, (now + takes, worker, gradients))

    for worker in range(workers):
        begin(worker, 0.0)
    for total in range(1, iterations * workers + 1):
        now, worker, gradients = heapq.heappop(pending)
        for s, v, g in zip(server, speed, gradients):
            v *= MOMENTUM
            v += g
            s -= rate_at(total // workers) / workers * v
        pushes[worker] += 1
        held.append(worker)
        slowest = min(pushes)
        for waiting in [w for w in held if staleness is None or pushes[w] <= slowest + staleness]:
            held.remove(waiting)
            begin(waiting, now)
        if total % (LOOK_EVERY * workers) == 0:
            seen.append((total // workers, now,
                         Models([s[None] for s in server]).mean_accuracy(test)))
    return seen


def train(point, iterations, seed, data, test):
    by_server = point.get("servers", False)
    return (train_by_server if by_server else train_in_step)(point, iterations, seed, data, test)


def first_at(seen, target):
    """Returns (iteration, ms) of the first measurement that reaches the target, or None."""
    return next(((iteration, ms) for iteration, ms, accuracy in seen if accuracy >= target), None)


def summary_of(runs, target):
    best = [max(accuracy for _, _, accuracy in seen) for seen in runs]
    reached = [first_at(seen, target) for seen in runs]
    all_reached = all(reached)
    iterations = float(np.mean([r[0] for r in reached])) if all_reached else None
    seconds = float(np.mean([r[1] for r in reached])) / 1000 if all_reached else None
    accuracy = [float(np.mean([seen[i][2] for seen in runs])) for i in range(len(runs[0]))]
    return {"best_accuracy": float(np.mean(best)), "best_accuracy_spread": float(np.std(best)),
            "target_accuracy": target, "iterations_to_target": iterations,
            "seconds_to_target": seconds,
            "at_iteration": [iteration for iteration, _, _ in runs[0]], "accuracy": accuracy}


def answer(request):
    data, test = load()
    runs = [[train(point, request["iterations"], seed, data, test)
             for seed in range(request["seeds"])] for point in request["points"]]
    base = runs[request["base"]]
    target = min(max(accuracy for _, _, accuracy in seen) for seen in base) - TARGET_SLACK
    return [summary_of(of_point, target) for of_point in runs]


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
