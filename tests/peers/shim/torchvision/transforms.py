"""LeRobot transforms only pictures that are kept outside videos; ours are all inside."""
