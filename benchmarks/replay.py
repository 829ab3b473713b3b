"""Recorded controls, played from the recorded first state: how many demonstrations complete what their folder names?"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from xskill.kitchen.demos import Demonstration, read_demonstrations
from xskill.kitchen.env import KitchenEnv

NAMED = {
    "bottomknob": "bottom-burner",
    "topknob": "top-burner",
    "switch": "light",
    "slide": "slide",
    "hinge": "hinge",
    "microwave": "microwave",
    "kettle": "kettle",
}


@cache
def kitchen() -> KitchenEnv:
    return KitchenEnv(cameras=())


def missed(demo: Demonstration) -> list[str]:
    """The sub-tasks its folder names that the replay did not complete."""
    env = kitchen()
    env.reset(options={"qpos": demo.qpos[0]})
    if demo.qvel is not None:
        env.data.qvel[:] = demo.qvel[0]
    for control in demo.ctrl:
        env.step(control)
    done = {completion.task for completion in env.progress.first}
    return sorted({NAMED[word] for word in demo.folder.split("_")[1:]} - done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demos", required=True, help="recorded demonstrations, in any form xskill reads")
    parser.add_argument("--every", type=int, default=1, help="take every n-th demonstration only")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    demos = read_demonstrations(options.demos)
    chosen = demos.good[:: options.every]
    with ProcessPoolExecutor(options.workers) as pool:
        results = list(pool.map(missed, chosen, chunksize=8))
    failures = {f"{demo.folder}/{demo.name}": gone for demo, gone in zip(chosen, results, strict=True) if gone}
    for name, gone in failures.items():
        print(f"{name} misses {', '.join(gone)}", file=sys.stderr)
    whole = len(chosen) - len(failures)
    summary = {"demos": len(chosen), "all_four": whole, "fraction": round(whole / len(chosen), 4)}
    print(json.dumps(summary | {"failures": failures, "unreadable": list(demos.problems)}) if options.json else summary)


if __name__ == "__main__":
    main()
