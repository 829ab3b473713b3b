"""A whole training step of policy and aligner: index, augment, forward, backward, update; no data loader.

`step_ms` is one such step, `data_share` the part of it that batches take: drawing moments, looking up frames, shifting
them. `over_loader` is how many times longer a data loader needs to bring the same batch to the device, one sample after
the other as research code does it, than drawing and looking up do. The frames are noise. `--profile` lists what the
device spends a step on.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from harness import arguments, compare, report
from xskill.data.episodes import Episodes
from xskill.data.frames import BankPlan, FrameBank, Making, make_bank
from xskill.engine.distributed import accelerator
from xskill.engine.loop import Step, compile_all
from xskill.engine.replay import Replay
from xskill.presets import PRESETS
from xskill.transfer.counterpart import Shown
from xskill.transfer.train import TransferPhase

LENGTH = 100


def noise(folder: Path, episodes: int, size: int) -> FrameBank:
    """A robot's bank of random frames, states and actions."""
    random = np.random.default_rng(0)

    def fill(making: Making, todo: Sequence[int]) -> Iterable[int]:
        for episode in todo:
            making.write(episode, "side", random.integers(256, size=(LENGTH, size, size, 3), dtype=np.uint8))
            yield episode

    states, actions = random.normal(size=(2, episodes * LENGTH, 9)).astype(np.float32)
    made = Episodes("robot", 12.5, tuple(map(str, range(episodes))), np.full(episodes, LENGTH), states, actions)
    return make_bank(folder, BankPlan(made, ("side",), size, size, {"made_by": "benchmark"}), fill)


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Moments one by one, as a data loader wants them."""

    def __init__(self, bank: FrameBank, skills: torch.Tensor, count: int, predict: int) -> None:
        self._frames, self._episodes, self._skills = bank.frames("side"), bank.episodes, skills
        self._places = np.random.default_rng(0).integers(1, len(skills) - predict, count)
        self._predict = predict

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        place, episodes = int(self._places[index]), self._episodes
        assert episodes.states is not None
        assert episodes.actions is not None
        return {
            "image": torch.from_numpy(self._frames[place - 1 : place + 1].copy()),
            "state": torch.from_numpy(episodes.states[place - 1 : place + 1]),
            "actions": torch.from_numpy(episodes.actions[place : place + self._predict]),
            "skill": self._skills[place],
            "plan": self._skills[np.linspace(0, LENGTH - 1, LENGTH).astype(int) + place // LENGTH * LENGTH],
        }


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--preset", default="kitchen", help="whose sizes")
    parser.add_argument("--batch", type=int, default=256, help="moments in a batch")
    parser.add_argument("--compile", action="store_true", help="compile the network")
    parser.add_argument("--replay", action="store_true", help="record a step on the GPU and play it back")
    parser.add_argument("--profile", action="store_true", help="list what takes most of a step's time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device, preset = torch.device(options.device), PRESETS[options.preset][1]

    def finished() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    with TemporaryDirectory() as folder:
        bank = noise(Path(folder), 20, preset.data.size)
        config = replace(preset.transfer, batch_size=options.batch)
        skills = torch.randn(bank.episodes.frames, preset.discover.encoder.width)
        watched = [Shown(torch.randn_like(skills), bank.episodes.starts, bank.episodes.lengths)] if config.cross else []
        phase = TransferPhase(config, bank, skills, np.arange(18), np.array([18, 19]), 0, device, watched=watched)
        acc = accelerator(options.device, config.loop.precision)
        module = acc.prepare_model(phase.module.to(device))
        if options.compile:
            compile_all(phase.hot)
        optimizer = torch.optim.AdamW(phase.module.parameters(), fused=device.type == "cuda", capturable=options.replay)
        loader = DataLoader(Samples(bank, skills, options.batch, config.policy.predict), options.batch)
        step = Step(0, phase.name, 0)

        def looked_up() -> None:
            phase._looked_up({name: tensor.to(device) for name, tensor in phase.batch(step).items()}, noisy=True)
            finished()

        def loaded() -> None:
            for batch in loader:
                for tensor in batch.values():
                    tensor.to(device)
            finished()

        def work(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            loss, _ = phase.loss(module, batch, step)
            optimizer.zero_grad()
            acc.backward(loss)
            optimizer.step()
            return {"loss": loss.detach()}

        done = Replay(work) if options.replay else work

        def trained() -> None:
            done({name: tensor.to(device) for name, tensor in phase.batch(step).items()})
            finished()

        if options.profile:
            print(spent_on(trained, device))
            return
        over_loader = compare(loaded, looked_up, options.rounds)
        data, whole = median(looked_up, options.rounds), median(trained, options.rounds)
        report(
            {"over_loader": over_loader}, options.json,
            step_ms=round(1e3 * whole, 2), data_share=round(data / whole, 3),
            moments_per_s=round(options.batch / whole, 1), device=device.type,
            compiled=options.compile, replayed=options.replay,
            parameters=sum(parameter.numel() for parameter in phase.module.parameters()),
        )  # fmt: skip


def spent_on(work: Callable[[], None], device: torch.device) -> str:
    """What takes most of the time of `work`, once it is warm: kernels on a GPU, operations on a CPU."""
    steps, kind = (
        5,
        torch.profiler.ProfilerActivity.CUDA if device.type == "cuda" else torch.profiler.ProfilerActivity.CPU,
    )
    for _ in range(steps):
        work()
    with torch.profiler.profile(activities=[kind]) as profile:
        for _ in range(steps):
            work()
    told: str = profile.key_averages().table(f"self_{device.type}_time_total", row_limit=40, max_name_column_width=90)
    return told


def median(work: Callable[[], None], rounds: int) -> float:
    """Seconds that `work` takes, once it is warm."""
    for _ in range(5):
        work()
    spent = []
    for _ in range(max(5, rounds)):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return float(np.median(spent))


if __name__ == "__main__":
    main()
