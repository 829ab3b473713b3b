"""LeRobot asks its hub for nothing, and keeps what it caches in a folder of the test."""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="xskill-peers-")
