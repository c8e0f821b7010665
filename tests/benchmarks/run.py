"""
``python tests/benchmarks/run.py NAME [--short] [--only SECTION]``: measure, one line per figure.

A line is ``NAME.figure value target met|short``. ``--short`` takes less than two minutes; it is
for whether the benchmark works, not for thresholds. Those that need a cluster use the one that
runs, or start it. ``data`` installs the loaders that it compares with the first time, in an
environment of their own, and leaves the object store out where its server is not compiled; it
has sections, any of which can be measured alone.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parents[1]
_BENCHMARKS = {
    "checkpoint": "checkpoint_saving",
    "data": "data_loading",
    "render": "render_specs",
    "startup": "start_up",
    "watch": "watch_runs",
}


def main() -> int:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("name", choices=sorted(_BENCHMARKS))
    parser.add_argument("--short", action="store_true", help="for correctness alone")
    parser.add_argument("--only", metavar="SECTION", help="of a benchmark that has some")
    arguments = parser.parse_args()
    # The test cluster is a package beside this folder, and so is what tests have of S3.
    sys.path[:0] = [str(_TESTS / "cluster"), str(_TESTS / "s3")]
    module = importlib.import_module(_BENCHMARKS[arguments.name])
    options: dict[str, Any] = {"short": arguments.short}
    if arguments.only is not None:
        sections = list(getattr(module, "SECTIONS", ()))
        if arguments.only not in sections:
            parser.error(f"{arguments.name} has the sections {', '.join(sections) or 'none'}")
        options["only"] = arguments.only
    for figure in module.measure(**options):
        print(figure.line(arguments.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
