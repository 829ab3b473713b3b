"""Recording what a step does on a GPU, and playing it back: launching it piece by piece can take longer than that."""

from collections.abc import Callable

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

WARM = 3
"""Steps done as ever before one is recorded: what is made at first use is made by then."""


class Replay:
    """Work on the device, recorded once it is warm. Every later call copies its input to where that of the record was.

    What is played back must do the same in every step, wait for nothing, and draw at random from CUDA's own generator
    only, whose seed is read anew each time. Numbers it is given otherwise, a learning rate, must be tensors. The next
    call overwrites its results.
    """

    def __init__(self, work: Callable[[Tensors], Tensors]) -> None:
        self._work, self._done = work, 0
        self._stream = torch.cuda.Stream()
        self._graph = torch.cuda.CUDAGraph()
        self._input: Tensors = {}
        self._output: Tensors = {}

    def __call__(self, batch: Tensors) -> Tensors:
        self._done += 1
        if self._done <= WARM:
            return self._aside(batch)
        if self._done == WARM + 1:
            self._input = {name: tensor.clone() for name, tensor in batch.items()}
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._output = self._work(self._input)
        for name, tensor in batch.items():
            self._input[name].copy_(tensor, non_blocking=True)
        self._graph.replay()
        return self._output

    def _aside(self, batch: Tensors) -> Tensors:
        """The work on the stream that it is going to be recorded on."""
        here = torch.cuda.current_stream()
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            output = self._work(batch)
        here.wait_stream(self._stream)
        return output


class Recorded:
    """A pure function of tensors that, on a GPU, is recorded for every shape of input it meets; elsewhere just called.

    Every result comes from a record, the first one too: whether it was played back before makes no difference.
    """

    def __init__(self, work: Callable[[Tensors], Tensors]) -> None:
        self._work = work
        self._records: dict[tuple[tuple[str, torch.Size], ...], Replay] = {}

    def __call__(self, batch: Tensors) -> Tensors:
        if not all(tensor.is_cuda for tensor in batch.values()):
            return self._work(batch)
        shapes = tuple((name, tensor.shape) for name, tensor in batch.items())
        if shapes not in self._records:
            self._records[shapes] = Replay(self._work)
            for _ in range(WARM):
                self._records[shapes](batch)
        return {name: tensor.clone() for name, tensor in self._records[shapes](batch).items()}
