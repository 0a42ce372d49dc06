"""The benchmarks are no installed package: they are found from the project's folder, as their commands are run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent.parent))
