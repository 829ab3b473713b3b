"""The skill prototypes, and the clustering that makes every embodiment use them all (paper, appendix)."""

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn


class SkillPrototypes(nn.Module):
    """K unit vectors; a skill's scores are its cosines with them."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, width), dim=-1))

    def forward(self, skills: Tensor, *, frozen: bool = False) -> Tensor:
        """Skills (..., D) of any length to scores (..., K), cosines; `frozen` prototypes get a gradient of zero.

        They are of unit length after every update; their moving average is not, so it is made so here.
        """
        weight = (
            self.weight.detach() + 0 * self.weight if frozen else self.weight
        )  # zero: several processes wait for it
        return F.linear(F.normalize(skills, dim=-1), F.normalize(weight, dim=-1))

    @torch.no_grad()
    def renormalise(self) -> None:
        """Bring every prototype back to length one, after the weights were updated."""
        self.weight.copy_(F.normalize(self.weight, dim=-1))


@torch.no_grad()
def sinkhorn(scores: Tensor, *, epsilon: float, iterations: int, together: bool = False) -> Tensor:
    """Target assignments of clips to prototypes that use all prototypes alike: (clips, K) -> (clips, K).

    Rows sum to one. Worked in logarithms and fp32, so that no scores are too large or too far apart. With `together`
    the clips of all processes are one batch, and each process gets back its own rows.
    """
    several = together and torch.distributed.is_available() and torch.distributed.is_initialized()
    plan = (_gathered(scores) if several else scores).float() / epsilon
    for _ in range(iterations):
        plan = plan - plan.logsumexp(dim=0, keepdim=True)
        plan = plan - plan.logsumexp(dim=1, keepdim=True)
    first = len(scores) * torch.distributed.get_rank() if several else 0
    return plan[first : first + len(scores)].exp()


def _gathered(rows: Tensor) -> Tensor:
    parts = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)
