"""What every benchmark shares: alternating measurement, ratios with their spread, one JSON object as the last line."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How many times longer one thing took than another: the median over rounds, and its quartiles."""

    median: float
    quartiles: tuple[float, float]
    rounds: int


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes, once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(what: Callable[[], object], reference: Callable[[], object], rounds: int) -> Ratio:
    """Time `what` over `reference`, taking turns (and turning the order) so that a busy machine slows both alike."""
    what(), reference()
    ratios = []
    for turn in range(rounds):
        if turn % 2:
            below, above = seconds(reference), seconds(what)
        else:
            above, below = seconds(what), seconds(reference)
        ratios.append(above / below)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if rounds > 1 else ratios * 3
    return Ratio(round(middle, 3), (round(low, 3), round(high, 3)), rounds)


def arguments(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """The options every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="how often the things compared take turns")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser


def report(ratios: dict[str, Ratio], as_json: bool, **more: object) -> None:
    """Print the ratios with their quartiles."""
    for name, ratio in ratios.items():
        low, high = ratio.quartiles
        print(f"{name}: {ratio.median} (quartiles {low} to {high}, {ratio.rounds} rounds)", file=sys.stderr)
    for name, value in more.items():
        print(f"{name}: {value}", file=sys.stderr)
    if as_json:
        flat = {name: ratio.median for name, ratio in ratios.items()}
        spread = {f"{name}_quartiles": ratio.quartiles for name, ratio in ratios.items()}
        print(json.dumps({**flat, **spread, "rounds": max(r.rounds for r in ratios.values()), **more}))
