"""Run programs of this folder one after the other in one job, since its start takes longer than they do.

several.py "NAME ARGUMENTS" ...
"""

import runpy
import sys
from pathlib import Path

for words in sys.argv[1:]:
    sys.argv = words.split()
    runpy.run_path(str(Path(__file__).with_name(f"{sys.argv[0]}.py")), run_name="__main__")
