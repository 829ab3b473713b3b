"""Phase 2 of the paper: skills become robot actions, and the robot learns where it is in a plan."""
