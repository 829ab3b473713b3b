"""The command line's door, `xskill` and `python -m xskill`: Ctrl-C is an answer while the rest is still imported."""

from xskill.engine.signals import leaving_at_once


def main() -> int:
    """What `xskill.cli.main` does with the words that the user gave."""
    with leaving_at_once():
        from xskill.cli import main as command
    return command()


if __name__ == "__main__":
    raise SystemExit(main())
