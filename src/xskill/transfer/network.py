"""What transfer learns: the policy, the aligner, and with goals what turns an image into one."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from xskill.discover.encoder import as_input
from xskill.engine.loop import Hot
from xskill.transfer.alignment import aligner_of
from xskill.transfer.config import TransferConfig
from xskill.transfer.policy import Body, GoalEncoder, observed, policy_of


class TransferModel(nn.Module):
    """What transfer learns: a policy and an aligner."""

    def __init__(self, config: TransferConfig, body: Body, tokens: int, pace: float) -> None:
        """Plans have this many `tokens`; in one chunk of actions a robot usually moves on by `pace` of them."""
        super().__init__()
        self._policy_is_kept, self._eyes_are_kept = config.keep_policy, config.keep_eyes
        self._aligner_is_new = config.keep_policy and config.aligner_anew
        self.policy = policy_of(config.policy, body)
        self.goal = GoalEncoder(config.policy, body) if config.policy.told == "goal" else None
        self.aligner = aligner_of(config.aligner, tokens, body.skill, body.size, pace)

    def forward(self, batch: Mapping[str, Tensor], cameras: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The policy's and the aligner's losses on a batch as `TransferPhase` makes it."""
        policy = torch.zeros((), device=batch["skill"].device)
        if not (self.training and self._policy_is_kept):
            policy = self.policy.loss(observed(batch, cameras), self.told(batch), batch["actions"], batch["kept"])
        return policy, self.aligner.loss(batch["scene"], batch["plan"], batch["hidden"], batch["skill"], batch["away"])

    def go_on_from(self, base: "TransferModel") -> None:
        """Take over the weights of `base`, of its policy alone where an aligner is new; what is kept learns no more."""
        if self._aligner_is_new:
            self.policy.load_state_dict(base.policy.state_dict())
        else:
            self.load_state_dict(base.state_dict())
        if self._policy_is_kept:
            self.policy.requires_grad_(False)
        if self._eyes_are_kept:
            self.policy.sight.cameras.requires_grad_(False)

    def told(self, batch: Mapping[str, Tensor]) -> Tensor:
        """What the policy is told to do at the moments of a batch, (B, D)."""
        return batch["told"] if self.goal is None else self.goal(as_input(batch["goal"])).float()

    def parts(self) -> list[Hot]:
        """What a forward pass is made of, but for a few small operations."""
        networks = self.policy.sight, getattr(self.policy, "unet", None), self.goal
        return [(network, "forward") for network in networks if network] + [(self.aligner, "loss")]
