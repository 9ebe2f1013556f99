#!/usr/bin/env bash
# Builds docker/Dockerfile, and the steps of docker/apptainer.def, and trains in both images on two ranks: as the image's
# user, as root, and as a user id without a name and a home, all of them without a network. `make test-docker` runs this.
# With docker or podman where one of them answers; else, as root, with buildah (apt install buildah debootstrap), which
# needs no daemon. pip's settings outside (pip.conf, PIP_*) and its CA bundle are passed in as secrets; packages are
# fetched by the pip outside, which may know local folders of wheels. IMAGE=NAME keeps the image under that name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'test-docker: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }
image=${IMAGE:-az_mpi_test}
base=debian:bookworm-slim
scratch=$(mktemp -d "${TMPDIR:-/tmp}/az_mpi_docker.XXXXXX")
containers=()
cleanup() {
    for container in "${containers[@]}"; do buildah rm "$container" >/dev/null; done
    if [ -z "${IMAGE:-}" ]; then "${engine:-true}" rmi -f "$image" "$image-apptainer" >/dev/null 2>&1 || true; fi
    rm -rf "$scratch"
}
trap cleanup EXIT

engine=
for name in docker podman; do
    if [ -z "$engine" ] && command -v $name >/dev/null && timeout 20 $name info >/dev/null 2>&1; then engine=$name; fi
done
if [ -z "$engine" ]; then
    command -v buildah >/dev/null && [ "$(id -u)" = 0 ] ||
        die "no docker or podman answers: start one, or as root \`apt install buildah debootstrap\`"
    engine=buildah
    export BUILDAH_ISOLATION=chroot
    if ! buildah inspect --type image "$base" >/dev/null 2>&1 && ! timeout 60 buildah pull -q "docker.io/library/$base" 2>/dev/null; then
        command -v debootstrap >/dev/null || die "$base cannot be pulled: \`apt install debootstrap\` to make one"
        say "$base cannot be pulled: making it with debootstrap"
        debootstrap --variant=minbase bookworm "$scratch/base" >"$scratch/debootstrap.log" || { tail "$scratch/debootstrap.log" >&2; exit 1; }
        rm -rf "$scratch"/base/var/cache/apt/archives/*.deb "$scratch"/base/var/lib/apt/lists/*
        container=$(buildah from scratch)
        containers+=("$container")
        buildah add -q "$container" "$scratch/base" / >/dev/null
        buildah config --cmd bash "$container"
        buildah commit -q "$container" "docker.io/library/$base" >/dev/null
        rm -rf "$scratch/base"
    fi
fi
say "with $($engine --version)"

# --- What pip knows outside -----------------------------------------------------------------------------------
mkdir "$scratch/packages"
pip=(python3 -m pip)
[ ! -x .venv/bin/python ] || pip=(.venv/bin/python -m pip)
export PIP_DISABLE_PIP_VERSION_CHECK=1
say "fetching the packages"
wheels=(--quiet --only-binary=:all: --python-version 3.11 --dest "$scratch/packages")  # Debian 12's Python
for glibc in 2_28 2_27 2_17 2_12 2_5; do wheels+=(--platform "manylinux_${glibc}_$(uname -m)"); done
wheels+=(--platform "manylinux2014_$(uname -m)")
"${pip[@]}" download "${wheels[@]}" -r <(sed '/# optional$/d' requirements.txt) 2>"$scratch/pip.log" || { tail "$scratch/pip.log" >&2; exit 1; }
while read -r requirement; do
    "${pip[@]}" download "${wheels[@]}" --no-deps "$requirement" 2>/dev/null || say "not there: $requirement (optional)"
done < <(sed -n '/bitbully/d; s/ *# optional$//p' requirements.txt)
secrets=()
"${pip[@]}" config list | python3 -c '
import ast, sys
settings = {}
for line in sys.stdin:  # the environment after the files, which it overrides
    name, _, value = line.strip().partition("=")
    section, _, key = name.partition(".")
    if section in ("global", "install", "download", ":env:") and key.lstrip(".") not in ("cert", "find-links", "target", "user"):
        settings.setdefault(section == ":env:", {})[key.lstrip(".")] = ast.literal_eval(value)
print("[global]")
for key, value in {**settings.get(False, {}), **settings.get(True, {})}.items():
    words = [word for word in value.split() if not word.startswith(("file:", "/"))]  # these are not inside
    if words:
        print(key, "=", " ".join(words))' >"$scratch/pip.conf"
secrets+=(--secret "id=pip.conf,src=$scratch/pip.conf")
ca=${PIP_CERT:-$("${pip[@]}" config get global.cert 2>/dev/null || true)}
ca=${ca:-${SSL_CERT_FILE:-}}
[ ! -r "$ca" ] || secrets+=(--secret "id=ca.pem,src=$ca")

# --- Building -------------------------------------------------------------------------------------------------
build() {  # IMAGE DOCKERFILE
    local begun=$SECONDS command=build
    say "building $2 as $1"
    [ $engine != buildah ] || command=bud
    DOCKER_BUILDKIT=1 $engine $command -f "$2" -t "$1" --build-context "packages=$scratch/packages" "${secrets[@]}" . \
        >"$scratch/build.log" 2>&1 || { tail -n 40 "$scratch/build.log" >&2; die "the build of $2 failed"; }
    say "built in $((SECONDS - begun)) s, $($engine images --format '{{.Size}}' "$1" | head -n 1)"
}

# --- Training -------------------------------------------------------------------------------------------------
inside() {  # IMAGE USER COMMAND...: without a network
    local image=$1 user=$2
    shift 2
    if [ $engine != buildah ]; then
        $engine run --rm --shm-size 1g --network none --user "$user" "$image" "$@"
        return
    fi
    local container
    container=$(buildah from "$image")
    containers+=("$container")
    unshare --net sh -c 'ip link set lo up && exec "$@"' sh buildah run --user "$user" "$container" -- "$@"
}
train() {  # IMAGE USER FOLDER COMMAND...
    local image=$1 user=$2 folder=$3
    shift 3
    say "two ranks of $image as $user, without a network"
    inside "$image" "$user" "$@" -np 2 -H localhost:2 python /opt/az_mpi/run_dist.py \
        --config_file /opt/az_mpi/configs/smoke.json --logdir "$folder/run-of-$user" >"$scratch/train.log" 2>&1 ||
        { tail -n 40 "$scratch/train.log" >&2; die "training failed"; }
    grep -v '^  step' "$scratch/train.log"
    grep -q '^complete: iteration 2 of 2' "$scratch/train.log"
    grep -q '^  1 .*play, train$' "$scratch/train.log"  # the second rank
    grep -q '^az_mpi on Open MPI.*horovod' "$scratch/train.log"
}
nobody=4321  # an id without a name
build "$image" docker/Dockerfile
! inside "$image" $nobody getent passwd $nobody >/dev/null 2>&1 || die "the image knows a user $nobody"
inside "$image" az python -c '
import socket
try:
    socket.create_connection(("192.0.2.1", 9), 1)
except OSError as error:
    assert error.errno == 101, error  # the network is unreachable
else:
    raise SystemExit("there is a network")'
train "$image" az /runs mpirun
train "$image" root /runs mpirun --allow-run-as-root
train "$image" $nobody /runs env HOME=/nowhere mpirun
python3 tools/apptainer_to_dockerfile.py docker/apptainer.def >"$scratch/apptainer.Dockerfile"
build "$image-apptainer" "$scratch/apptainer.Dockerfile"
inside "$image-apptainer" $nobody /runscript --help | grep -q '^usage: ' || die "the image's program does not start"
train "$image-apptainer" $nobody /tmp env HOME=/nowhere mpirun
say "passed"
