"""What every training phase shares: the loop, its configuration, checkpoints, logs and run folders."""
