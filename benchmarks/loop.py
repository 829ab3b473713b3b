"""What the engine costs: the example phase in its loop, over the same steps in a bare PyTorch loop."""

import io
import tempfile
from pathlib import Path

import torch
from rich.console import Console

from harness import arguments, compare, report
from harness.example import ExampleConfig, ExamplePhase
from xskill.engine.config import LoopConfig
from xskill.engine.loop import Step, train


def main() -> None:
    parser = arguments(__doc__, rounds=9)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    options = parser.parse_args()
    device = torch.device("cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu")
    config = ExampleConfig(
        loop=LoopConfig(steps=options.steps, ema_decay=0.99, clip_norm=1.0, checkpoint_every=options.steps)
    )

    def bare() -> None:
        phase = ExamplePhase(config, 0)
        module = phase.module.to(device)
        optimizer = torch.optim.AdamW(module.parameters(), lr=config.loop.learning_rate, fused=device.type == "cuda")
        for index in range(options.steps):
            step = Step(0, phase.name, index)
            batch = {name: tensor.to(device) for name, tensor in phase.batch(step).items()}
            loss, _ = phase.loss(module, batch, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        module.eval()
        phase.evaluate(module)

    def engine() -> None:
        with tempfile.TemporaryDirectory() as folder:
            train(
                ExamplePhase(config, 0),
                config.loop,
                seed=0,
                folder=Path(folder),
                device=options.device,
                console=Console(file=io.StringIO()),
            )

    report({"over_bare": compare(engine, bare, options.rounds)}, options.json, steps=options.steps, device=device.type)


if __name__ == "__main__":
    main()
