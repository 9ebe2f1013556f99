"""run_dist.py on a processor that multiplies bf16 slowly, as it runs on one that does so in hardware.

    mpirun -np 2 -H localhost:2 python benchmarks/programs/as_with_bf16.py --config_file configs/smoke.json ...
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import run_dist
from az_mpi.network import openvino_engine, torch_engine


def has_bf16(device):
    return True


torch_engine.has_bf16 = openvino_engine.has_bf16 = has_bf16

if __name__ == "__main__":
    sys.exit(run_dist.main(sys.argv[1:]))
