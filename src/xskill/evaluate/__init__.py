"""How well a robot does what it was shown, and how sure we may be of it."""
