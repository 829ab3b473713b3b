"""Watch one video of another body doing a task, and make the robot do it."""

__version__ = "0.1.0"
