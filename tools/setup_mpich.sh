#!/usr/bin/env bash
# Makes .venv-mpich: MPICH and mpi4py from PyPI over the packages of .venv, to run the tests under a second MPI.
# `make test-mpich` runs this after `make setup`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mpich=5.0.2
mpi4py=$(sed -n 's/^mpi4py==\([^ ]*\).*/\1/p' requirements.txt)
python=$(readlink -f .venv/bin/python)
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
wanted="folder=$PWD python=$python mpich=$mpich mpi4py=$mpi4py"
if [ "$(cat .venv-mpich/setup.txt 2>/dev/null)" = "$wanted" ]; then exit 0; fi

echo "setup: making .venv-mpich with MPICH $mpich"
rm -rf .venv-mpich
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1
.venv/bin/python -m venv --without-pip .venv-mpich
.venv/bin/python -m pip --python .venv-mpich/bin/python install --quiet "mpich==$mpich" "mpi4py==$mpi4py"
# What is not in .venv-mpich is found in .venv: packages of the first come first.
echo "$packages" >"$(.venv-mpich/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
library=$(.venv-mpich/bin/python -c 'from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])')
case $library in
    MPICH*) ;;
    *) echo "setup: mpi4py of .venv-mpich uses another MPI, $library: unload its module (LD_LIBRARY_PATH)" >&2; exit 1 ;;
esac
echo "$wanted" >.venv-mpich/setup.txt
