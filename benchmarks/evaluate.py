"""Episodes in many kitchens at once, one batched decision for all, over one episode after the other.

`over_serial` is how many times longer the same episodes take one by one, in one process, each decision for one robot.
`episode_s` is one episode's share of the time when they run together. The weights are random, episodes last 70 steps,
and starting processes is not counted.
"""

import os
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from harness import Ratio, arguments, report
from xskill.compose.agent import Observation
from xskill.compose.plan import SkillPlan
from xskill.discover.encoder import SkillModel
from xskill.evaluate.protocol import Setting, Trial
from xskill.evaluate.rollouts import Robots, Truth, roll_out
from xskill.kitchen.env import HOME
from xskill.presets import PRESETS
from xskill.transfer.model import Model
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import Range


def model_of(preset: str, device: torch.device) -> Model:
    """A model with random weights whose robot fidgets around where demonstrations begin."""
    config = PRESETS[preset][1]
    discover, transfer, size = config.discover, config.transfer, (config.data.size, config.data.size)
    around = Range(tuple(HOME[:9]), (0.1,) * 9)
    body = Body(("side",), size, around, around, discover.encoder.width)
    tokens = transfer.aligner.tokens or 100
    torch.manual_seed(0)
    skills, network = SkillModel(discover, size), TransferModel(transfer, body, tokens, 3.6)
    return Model(discover, transfer, body, tokens, 3.6, 12.5, skills.to(device).eval(), network.to(device).eval())


class Timed(Robots):
    """Notes when the first decision was asked for: by then all processes have started."""

    began = 0.0

    def decide(self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]) -> dict[int, np.ndarray]:
        self.began = self.began or time.perf_counter()
        return super().decide(seen, truth)


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--preset", default="kitchen", help="whose sizes")
    parser.add_argument("--episodes", type=int, default=32, help="episodes that run together")
    parser.add_argument("--serial", type=int, default=2, help="episodes that run one by one")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes when together")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    made = model_of(options.preset, torch.device(options.device))
    tokens = torch.randn(made.tokens, made.body.skill).to(options.device)
    plan = SkillPlan(tokens, tokens, torch.arange(made.tokens), torch.zeros(made.tokens))

    def episode_seconds(count: int, width: int, workers: int) -> float:
        todo = [Trial("b", Setting("same x1", "franka"), c, "", ("light",), np.array(HOME)) for c in range(count)]
        robots = Timed(made, lambda trial: plan, "aligner", width)
        for _ in roll_out(todo, robots, workers=workers, width=width):
            pass
        return (time.perf_counter() - robots.began) / count

    ratios, spent = [], []
    for _ in range(options.rounds):
        together = episode_seconds(options.episodes, options.episodes, options.workers)
        spent.append(together)
        ratios.append(episode_seconds(options.serial, 1, 1) / together)
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    ratio = Ratio(round(float(middle), 3), (round(float(low), 3), round(float(high), 3)), options.rounds)
    report(
        {"over_serial": ratio}, options.json,
        episode_s=round(float(np.median(spent)), 3), workers=options.workers, device=options.device,
    )  # fmt: skip


if __name__ == "__main__":
    main()
