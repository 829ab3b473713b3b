"""How long one chunk of actions takes, observation in to actions out: the aligner, then the policy.

`p50_ms` and `p99_ms` are for the sizes of a preset, with random weights. `over_paper` is how many times longer the same
takes at the paper's sizes with 60 steps of DDPM. A chunk is 640 ms of robot time.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from harness import arguments, compare, report
from xskill.compose.agent import Agent, Observation
from xskill.discover.encoder import SkillModel
from xskill.presets import PRESETS
from xskill.transfer.model import Model
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import Range

JOINTS, FPS, PACE = 9, 12.5, 3.6


def acting(preset: str, device: torch.device) -> Callable[[], None]:
    """Work: one chunk for one robot."""
    config = PRESETS[preset][1]
    size, tokens = (config.data.size, config.data.size), config.transfer.aligner.tokens or 100
    around = Range((0.0,) * JOINTS, (1.0,) * JOINTS)
    torch.manual_seed(0)
    body = Body(("side",), size, around, around, config.discover.encoder.width)
    skills = SkillModel(config.discover, size).to(device).eval()
    network = TransferModel(config.transfer, body, tokens, PACE).to(device).eval()
    agent = Agent(Model(config.discover, config.transfer, body, tokens, PACE, FPS, skills, network))
    random = np.random.default_rng(0)
    agent.prompt(random.integers(256, size=(tokens, *size, 3), dtype=np.uint8))
    observation: Observation = {
        "state": np.zeros(JOINTS),
        "side": random.integers(256, size=(*size, 3), dtype=np.uint8),
    }

    def work() -> None:
        agent.act(observation)

    return work


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--preset", default="kitchen", help="whose sizes")
    parser.add_argument("--reference", default="paper-kitchen", help="what it is compared with")
    parser.add_argument("--chunks", type=int, default=50, help="chunks whose times are taken")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    ours, paper = acting(options.preset, device), acting(options.reference, device)
    over_paper = compare(paper, ours, options.rounds)
    times = []
    for _ in range(options.chunks):
        began = time.perf_counter()
        ours()
        times.append(1e3 * (time.perf_counter() - began))
    p50, p99 = np.percentile(times, [50, 99])
    report(
        {"over_paper": over_paper}, options.json,
        p50_ms=round(float(p50), 2), p99_ms=round(float(p99), 2), device=device.type, chunks=options.chunks,
    )  # fmt: skip


if __name__ == "__main__":
    main()
