#!/usr/bin/env bash
# Installs Horovod (and with a site's MPI also mpi4py) into .venv, built against the MPI chosen there.
# tools/setup.sh calls this; MPI_HOME empty means Open MPI from PyPI. Built wheels are kept in a cache.
# With HOROVOD_GPU_OPERATIONS=NCCL it needs a CUDA toolkit (nvcc on PATH, or CUDA_HOME) of torch's CUDA version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

horovod=0.28.1  # the last release
horovod_sha256=92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0
mpi4py=$(sed -n 's/^mpi4py==\([^ ]*\).*/\1/p' requirements.txt)
python=$PWD/.venv/bin/python
log=$PWD/.venv/horovod-build.log
tools=$PWD/tools
export PATH="$PWD/.venv/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
unset PIP_QUIET  # all of it goes to the log
[ -n "${MPI_HOME:-}" ] || unset MPI_HOME
[ -n "${HOROVOD_GPU_OPERATIONS:-}" ] || unset HOROVOD_GPU_OPERATIONS  # Horovod refuses an empty one

say() { printf 'setup: %s\n' "$*"; }

# --- The cache folder's name holds all that the wheels depend on ---------------------------------------------
mpirun --version >/dev/null || {
    say "$(command -v mpirun) does not start: an MPI or compiler module that is loaded can be in its way (LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}): unload it, or use that MPI with MPI_HOME=/path/to/mpi" >&2
    exit 1
}
mpi=$(mpirun --version 2>&1 | grep -Eio -m1 '(open mpi\)|version:) *v?[0-9.]+' | grep -Eo '[0-9][0-9.]*$' || true)
mpi=mpi-${mpi:-unknown}
[ -z "${MPI_HOME:-}" ] || mpi+=-$(echo "$MPI_HOME $(mpirun --version 2>&1)" | sha256sum | cut -c1-8)
tags=$("$python" -c '
import platform, sys
from importlib.metadata import version
print("torch-" + version("torch"), "py%d.%d" % sys.version_info[:2], platform.machine(), "".join(platform.libc_ver()), sep="_")')
cache=${AZ_MPI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/az_mpi}
patch=$(sha256sum "$tools/patch_horovod.py" | cut -c1-8)
wheels=$cache/horovod-${horovod}-${patch}_${mpi}_${tags}${HOROVOD_GPU_OPERATIONS:+_$HOROVOD_GPU_OPERATIONS}

# --- Building: in a scratch folder, and moved into the cache whole -------------------------------------------
build() {
    local jobs nccl rpath status
    mkdir -p "$cache"
    find "$cache" -maxdepth 1 -name 'building.*' -mmin +600 -exec rm -rf {} +  # what a killed build left
    scratch=$(mktemp -d "$cache/building.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    mkdir "$scratch/wheels"
    jobs=$(awk -v cores="$(nproc)" '/^MemAvailable/ { n = int($2 / 2e6); if (n > cores) n = cores; print (n > 1 ? n : 1) }' \
        /proc/meminfo)  # 2 GB a compiler
    say "building Horovod $horovod against $mpi${MPI_HOME:+ in $MPI_HOME}: 1 to 5 minutes, log in .venv/horovod-build.log"
    set +e  # bash ignores -e inside ( ) where the result is tested at once
    (
        set -ex
        if [ -n "${MPI_HOME:-}" ]; then
            # PyPI's binary mpi4py may find another libmpi than Horovod's, so it is built from source here.
            MPICC=$MPI_HOME/bin/mpicc "$python" -m pip wheel --no-deps --no-cache-dir --no-binary mpi4py \
                --wheel-dir "$scratch/wheels" "mpi4py==$mpi4py"
            rpath=$MPI_HOME/lib:$MPI_HOME/lib64
        else
            rpath=\$ORIGIN/../../../..  # .venv/lib, wherever .venv is: the wheel is for other folders too
        fi
        cd "$scratch"
        "$python" -m pip download --no-deps --no-build-isolation --no-binary horovod "horovod==$horovod"
        echo "$horovod_sha256  horovod-$horovod.tar.gz" | sha256sum --check
        tar xzf "horovod-$horovod.tar.gz"
        cd "horovod-$horovod"
        "$python" "$tools/patch_horovod.py" .
        # The library must find the MPI and the torch of the .venv it is installed in, not those of the one it was
        # built in.
        sed -i "s|^project(horovod CXX)|&\nset(CMAKE_BUILD_WITH_INSTALL_RPATH ON)\nset(CMAKE_INSTALL_RPATH \"${rpath//:/;};\$ORIGIN/../../torch/lib\")|" CMakeLists.txt
        # Without GPU operations asked for, the same build everywhere: no use of a CUDA toolkit that happens to be
        # on PATH, whole or not.
        [ -n "${HOROVOD_GPU_OPERATIONS:-}" ] || sed -i 's/CUDA_HOME is not None/False/' cmake/Modules/FindPytorch.cmake
        if [ "${HOROVOD_GPU_OPERATIONS:-}" = NCCL ] && [ -z "${HOROVOD_NCCL_HOME:-}" ]; then
            # torch brings NCCL as a package of its own; Horovod uses the same one.
            nccl=$("$python" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])')
            mkdir -p "$scratch/nccl/lib"
            ln -s "$nccl/include" "$scratch/nccl/include"
            ln -s "$nccl/lib/libnccl.so.2" "$scratch/nccl/lib/libnccl.so"
            export HOROVOD_NCCL_HOME=$scratch/nccl HOROVOD_NCCL_LINK=SHARED
        fi
        [ -z "${CUDA_HOME:-}" ] || export HOROVOD_CUDA_HOME="${HOROVOD_CUDA_HOME:-$CUDA_HOME}"
        # MAKEFLAGS: this make's own, not those of the `make setup` around it.
        MAKEFLAGS=-j$jobs HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_CPU_OPERATIONS=MPI \
            HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
            "$python" -m pip wheel --verbose --no-deps --no-build-isolation --no-cache-dir --wheel-dir "$scratch/wheels" .
    ) >"$log" 2>&1
    status=$?
    set -e
    if [ $status -ne 0 ]; then
        grep -E -m 5 -A 3 'CMake Error|[Ee]rror: |No space left' "$log" >&2 || tail -n 25 "$log" >&2
        say "building Horovod failed: the whole log is in .venv/horovod-build.log, known causes are in docs/trouble.md" >&2
        exit 1
    fi
    rm -rf "$wheels"
    mv "$scratch/wheels" "$wheels"
}

install() { "$python" -m pip install --quiet --no-deps --force-reinstall "$wheels"/*.whl && echo "$wheels" >.venv/horovod.txt; }

# Both can be loaded, Horovod has MPI, and one libmpi is between them, the chosen one.
check() {
    "$python" - <<'PYTHON'
import os, re, sys
import mpi4py
mpi4py.rc.initialize = False  # some sites forbid MPI_Init outside of a job
from mpi4py import MPI
import horovod.torch as hvd
if not hvd.mpi_built():
    sys.exit("setup: Horovod was built without MPI")
libraries = set(re.findall(r"\S*/libmpi(?:_cray|ch)?\.so\S*", open("/proc/self/maps").read()))
if len(libraries) != 1:
    sys.exit(f"setup: mpi4py and Horovod use different MPI libraries: {sorted(libraries)}")
if "MPI_HOME" not in os.environ and os.path.realpath(sys.prefix) not in min(libraries):
    sys.exit(f"setup: {min(libraries)} comes before Open MPI from PyPI: unload the MPI module that put its folder "
             "into LD_LIBRARY_PATH, or use that MPI with MPI_HOME=/path/to/mpi")
PYTHON
}

if [ "$(cat .venv/horovod.txt 2>/dev/null)" = "$wheels" ] && check; then exit 0; fi
if [ -d "$wheels" ]; then
    say "installing Horovod $horovod from the cache, $wheels"
    if install && check; then exit 0; fi
    say "that wheel does not work here; building it again"
fi
build
install
check
