"""LeRobot asks its hub for nothing, and keeps what it caches in a folder that goes with the tests."""

import atexit
import os
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="xskill-peers-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
