"""The moving average of a network's weights, which is what gets used."""

import copy

import torch
from torch import Tensor, nn


class MovingAverage:
    """A copy of a network that follows it. Tensor arithmetic throughout: reading a number would make a GPU wait."""

    def __init__(self, module: nn.Module, decay: float, power: float) -> None:
        """After n updates the average decays with 1 - (1 + n)^-power, at most with `decay`."""
        self.module = copy.deepcopy(module).requires_grad_(False)
        self._least, self._power = 1 - decay, power
        self.updates: Tensor = torch.zeros((), device=next(module.parameters()).device)
        self._averages: list[Tensor] = [*self.module.parameters()]
        self._buffers = [*self.module.buffers()]

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Follow `module` by one step."""
        weight = (1 + self.updates).pow(-self._power).clamp(min=self._least)
        current: list[Tensor] = [*module.parameters()]
        change = torch._foreach_sub(current, self._averages)
        torch._foreach_mul_(change, weight)
        torch._foreach_add_(self._averages, change)
        for ours, theirs in zip(self._buffers, module.buffers(), strict=True):
            ours.copy_(theirs)
        self.updates += 1
