"""How long a user waits for `xskill --help`, over a bare Python start and over importing torch."""

import statistics
import subprocess
import sys

from harness import arguments, compare, report, seconds


def main() -> None:
    options = arguments(__doc__, rounds=7).parse_args()

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, capture_output=True)

    def help_() -> None:
        run("-m", "xskill", "--help")

    ratios = {
        "over_python": compare(help_, lambda: run("-c", "pass"), options.rounds),
        "over_torch": compare(help_, lambda: run("-c", "import torch"), options.rounds),
    }
    report(ratios, options.json, seconds=round(statistics.median(seconds(help_) for _ in range(options.rounds)), 3))


if __name__ == "__main__":
    main()
