"""An interpreter of MSCCL XML that shares nothing with the code that writes it.

Thread blocks run as sequential programs, one step at a time, in a random order drawn from a seed;
a connection is a FIFO that holds a bounded number of messages; a step waits for the flag of the
thread block it depends on, as the MSCCL runtime does. Every slot holds an integer, and at the end
each rank must hold exactly the sums that the collective promises.

    check(xml_text, seeds=range(20))    # raises AssertionError with the seed that fails
"""

import random
import xml.etree.ElementTree as ElementTree
from collections import deque
from dataclasses import dataclass, field

# The number of sends that a connection buffers. NCCL buffers two.
CAPACITIES = (2, 1_000_000)

SHARED = ("reducescatter", "allgather", "alltoall")


@dataclass
class Step:
    number: int
    type: str
    source: tuple  # (buffer, offset)
    target: tuple
    count: int
    depends_on: tuple | None  # (thread block, step number)
    has_dependent: bool


@dataclass
class Block:
    gpu: int
    id: int
    send: int
    recv: int
    channel: int
    steps: list
    next: int = 0
    flag: int = -1


@dataclass
class Algorithm:
    collective: str
    gpus: int
    slots: int
    root: int
    modes: list  # True for in place
    sizes: list = field(default_factory=list)  # per GPU: {"i": …, "o": …, "s": …}
    blocks: list = field(default_factory=list)  # of all GPUs


def parse(xml_text):
    root = ElementTree.fromstring(xml_text)
    assert root.tag == "algo", root.tag
    modes = [mode for mode, key in ((True, "inplace"), (False, "outofplace"))
             if root.get(key) == "1"]
    assert modes, "neither in place nor out of place"
    algorithm = Algorithm(root.get("coll"), int(root.get("ngpus")),
                          int(root.get("nchunksperloop")), int(root.get("root", -1)), modes)
    for gpu in root:
        assert gpu.tag == "gpu" and int(gpu.get("id")) == len(algorithm.sizes)
        algorithm.sizes.append({b: int(gpu.get(b + "_chunks")) for b in "ios"})
        blocks = [parse_block(int(gpu.get("id")), tb) for tb in gpu]
        assert [b.id for b in blocks] == list(range(len(blocks))), "thread block ids have gaps"
        check_dependencies(blocks)
        algorithm.blocks += blocks
    assert len(algorithm.sizes) == algorithm.gpus
    for end in ("send", "recv"):
        ends = [(b.gpu, getattr(b, end), b.channel) for b in algorithm.blocks
                if getattr(b, end) >= 0]
        assert len(ends) == len(set(ends)), f"two thread blocks {end} on one connection"
    return algorithm


def parse_block(gpu, tb):
    steps = []
    for step in tb:
        depends_on = (int(step.get("depid")), int(step.get("deps")))
        steps.append(Step(int(step.get("s")), step.get("type"),
                          (step.get("srcbuf"), int(step.get("srcoff"))),
                          (step.get("dstbuf"), int(step.get("dstoff"))), int(step.get("cnt")),
                          depends_on if depends_on != (-1, -1) else None,
                          step.get("hasdep") == "1"))
    assert [s.number for s in steps] == list(range(len(steps))), "step numbers have gaps"
    for this, after in zip(steps, steps[1:] + [None]):
        if this.type == "nop":
            assert this.depends_on, "a nop that waits for nothing"
            assert after and after.depends_on, "the step after a nop must wait, too"
    return Block(gpu, int(tb.get("id")), int(tb.get("send")), int(tb.get("recv")),
                 int(tb.get("chan")), steps)


def check_dependencies(blocks):
    for block in blocks:
        for step in block.steps:
            if not step.depends_on:
                continue
            other, number = step.depends_on
            assert blocks[other].steps[number].has_dependent, (
                f"gpu {block.gpu}: tb {other} step {number} is waited for but has hasdep=0")


class Memory:
    """The buffers of one GPU. In place, a cell of the output may be a cell of the input."""

    def __init__(self, algorithm, gpu, in_place):
        self.sizes = algorithm.sizes[gpu]
        self.gpu = gpu
        self.cells = {}
        self.collective = algorithm.collective
        self.share = algorithm.slots // algorithm.gpus if self.collective in SHARED else 0
        self.in_place = in_place and not (self.collective == "reduce" and gpu != algorithm.root)
        self.no_output = self.collective == "reduce" and gpu != algorithm.root

    def cell(self, place):
        buffer, offset = place
        assert 0 <= offset < self.sizes[buffer], f"gpu {self.gpu}: {buffer}[{offset}] is outside"
        assert not (buffer == "o" and self.no_output), f"gpu {self.gpu} has no output"
        if self.in_place and buffer == "o" and self.collective == "reducescatter":
            return "i", offset + self.gpu * self.share
        if self.in_place and buffer == "i" and self.collective == "allgather":
            return "o", offset + self.gpu * self.share
        if self.in_place and buffer == "o" and self.collective != "allgather":
            return "i", offset
        return place

    def read(self, place, count):
        values = [self.cells.get(self.cell((place[0], place[1] + k))) for k in range(count)]
        assert None not in values, f"gpu {self.gpu} reads {place}, which holds nothing"
        return values

    def write(self, place, values):
        for k, value in enumerate(values):
            self.cells[self.cell((place[0], place[1] + k))] = value


def inputs_of(algorithm, rng):
    """The values of each GPU's input slots; None for a GPU that contributes nothing."""
    share = algorithm.slots // algorithm.gpus
    count = share if algorithm.collective == "allgather" else algorithm.slots
    return [[rng.randrange(1 << 48) for _ in range(count)]
            if algorithm.collective != "broadcast" or gpu == algorithm.root else None
            for gpu in range(algorithm.gpus)]


def expected_output(algorithm, inputs, gpu):
    """The values of the GPU's output slots, or None if it needs none."""
    share = algorithm.slots // algorithm.gpus

    def total(slot):
        return sum(values[slot] for values in inputs)

    collective = algorithm.collective
    if collective == "allreduce" or (collective == "reduce" and gpu == algorithm.root):
        return [total(slot) for slot in range(algorithm.slots)]
    if collective == "reduce":
        return None
    if collective == "broadcast":
        return inputs[algorithm.root]
    if collective == "reducescatter":
        return [total(gpu * share + k) for k in range(share)]
    if collective == "allgather":
        return [value for values in inputs for value in values]
    assert collective == "alltoall", collective
    return [values[gpu * share + k] for values in inputs for k in range(share)]


class Machine:
    def __init__(self, algorithm, memories, capacity):
        self.memories = memories
        self.capacity = capacity
        self.fifos = {}
        self.block_of = {(b.gpu, b.id): b for b in algorithm.blocks}

    def fifo(self, source, target, channel):
        return self.fifos.setdefault((source, target, channel), deque())

    def try_step(self, block):
        """Runs the block's next step if it can run now."""
        step = block.steps[block.next]
        if step.depends_on:
            other, number = step.depends_on
            if self.block_of[block.gpu, other].flag < number:
                return False
        memory = self.memories[block.gpu]
        if step.type == "s":
            fifo = self.fifo(block.gpu, block.send, block.channel)
            if len(fifo) >= self.capacity:
                return False
            fifo.append(memory.read(step.source, step.count))
        elif step.type in ("r", "rrc"):
            fifo = self.fifo(block.recv, block.gpu, block.channel)
            if not fifo:
                return False
            values = fifo.popleft()
            assert len(values) == step.count, "sender and receiver count differently"
            if step.type == "rrc":
                own = memory.read(step.source, step.count)
                values = [a + b for a, b in zip(own, values)]
            memory.write(step.target, values)
        elif step.type == "cpy":
            memory.write(step.target, memory.read(step.source, step.count))
        else:
            assert step.type == "nop", f"unknown step type {step.type}"
        block.next += 1
        if step.has_dependent:
            block.flag = step.number
        return True

    def run(self, blocks, rng):
        """Runs the blocks in random order. For half of the seeds, random blocks starve as long as
        another can run."""
        unfinished = [b for b in blocks if b.steps]
        starving = rng.random() < 0.5
        rng.shuffle(unfinished)
        while unfinished:
            order = unfinished if starving else rng.sample(unfinished, len(unfinished))
            moved = next((b for b in order if self.try_step(b)), None)
            assert moved, "deadlock: " + "; ".join(
                f"gpu {b.gpu} tb {b.id} at step {b.next}" for b in unfinished[:8])
            if moved.next == len(moved.steps):
                unfinished.remove(moved)
        left = [key for key, fifo in self.fifos.items() if fifo]
        assert not left, f"messages nobody received: {left}"


def run_once(xml_text, seed, in_place, capacity):
    algorithm = parse(xml_text)
    rng = random.Random(seed)
    inputs = inputs_of(algorithm, rng)
    memories = []
    for gpu, values in enumerate(inputs):
        memory = Memory(algorithm, gpu, in_place)
        if values:
            memory.write(("i", 0), values)
        memories.append(memory)
    Machine(algorithm, memories, capacity).run(algorithm.blocks, rng)
    for gpu, memory in enumerate(memories):
        wanted = expected_output(algorithm, inputs, gpu)
        if wanted is not None:
            found = memory.read(("o", 0), len(wanted))
            wrong = [slot for slot, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]]
            assert not wrong, f"gpu {gpu} ends with wrong values in output slots {wrong[:8]}"
        if inputs[gpu] and not memory.in_place:
            assert memory.read(("i", 0), len(inputs[gpu])) == inputs[gpu], (
                f"gpu {gpu}: the input was overwritten")


def check(xml_text, seeds=range(10)):
    """Runs the program in every mode that it declares. A failure names the run."""
    for seed in seeds:
        for in_place in parse(xml_text).modes:
            for capacity in CAPACITIES:
                try:
                    run_once(xml_text, seed, in_place, capacity)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, in place {in_place}, "
                                         f"capacity {capacity}: {error}") from error


# The interpreter's own tests: what it must accept and what it must catch.

def swap_xml(wait_for_send):
    """Two GPUs swap and add one slot, in place."""
    wait = 'depid="0" deps="0"' if wait_for_send else 'depid="-1" deps="-1"'
    gpus = "".join(f"""
      <gpu id="{g}" i_chunks="1" o_chunks="1" s_chunks="0">
        <tb id="0" send="{1 - g}" recv="-1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"
                depid="-1" deps="-1" hasdep="1"/>
        </tb>
        <tb id="1" send="-1" recv="{1 - g}" chan="0">
          <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"
                {wait} hasdep="0"/>
        </tb>
      </gpu>""" for g in range(2))
    return (f'<algo name="swap" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" '
            f'coll="allreduce" inplace="1" outofplace="0">{gpus}</algo>')


def fails(xml_text):
    try:
        check(xml_text, range(40))
    except AssertionError as error:
        return str(error)
    return None


def test_swap__accepted():
    assert fails(swap_xml(wait_for_send=True)) is None


def test_swap_without_the_wait__wrong_in_some_order():
    assert "wrong values" in fails(swap_xml(wait_for_send=False))


def test_wait_for_one_another__deadlock():
    xml = swap_xml(wait_for_send=True).replace('depid="-1" deps="-1" hasdep="1"',
                                               'depid="1" deps="0" hasdep="1"')
    assert "deadlock" in fails(xml.replace('hasdep="0"', 'hasdep="1"'))


def test_dropped_receive__caught():
    xml = swap_xml(wait_for_send=True)
    start = xml.rindex('<step')
    assert fails(xml[:start] + xml[xml.index("/>", start) + 2:])
