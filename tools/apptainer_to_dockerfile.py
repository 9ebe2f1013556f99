"""Prints docker/apptainer.def as a Dockerfile, so that its steps can be built and run where there is no Apptainer.

    python3 tools/apptainer_to_dockerfile.py docker/apptainer.def >Dockerfile

It knows what that file uses: "Bootstrap: docker", %files, %post, %environment and %runscript. %post runs as Apptainer
runs it, as one shell script that the first failing line ends.
"""

import sys


def sections(text):
    """Return ({key: value} of the header, {name: lines} of the sections) of a definition file, without comments."""
    header, found, lines = {}, {}, None
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.startswith("%"):
            lines = found.setdefault(line[1:].strip(), [])
        elif lines is not None:
            lines.append(line.strip())
        else:
            key, _, value = line.partition(":")
            header[key.strip().lower()] = value.strip()
    return header, found


def dockerfile(text):
    """Return the Dockerfile that does what a definition file says. Raises ValueError for what it does not know."""
    header, found = sections(text)
    if header.get("bootstrap") != "docker" or set(header) != {"bootstrap", "from"}:
        raise ValueError(f"a header that is not known: {header}")
    if unknown := set(found) - {"files", "post", "environment", "runscript"}:
        raise ValueError(f"sections that are not known: {sorted(unknown)}")
    lines = ["FROM scratch AS packages", f"FROM {header['from']}"]
    lines += [f"COPY {line}" for line in found["files"]]
    mounts = [
        "type=bind,from=packages,target=/packages",
        "type=secret,id=pip.conf,target=/run/secrets/pip.conf",
        "type=secret,id=ca.pem,target=/run/secrets/ca.pem",
        "type=cache,target=/var/cache/az_mpi",
    ]
    # What pip knows outside, which a builder of Apptainer would have in its environment.
    outside = [
        "export AZ_MPI_CACHE=/var/cache/az_mpi PIP_FIND_LINKS=/packages",
        "if [ -e /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi",
        "if [ -e /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi",
    ]
    script = "\\n".join(line.replace("\\", "\\\\").replace("'", "'\\''") for line in [*outside, *found["post"]])
    lines.append(
        "RUN " + " ".join(f"--mount={one}" for one in mounts) + f" printf '{script}\\n' >/post && sh -ex /post"
    )
    for line in found["environment"]:
        lines.append("ENV " + line.removeprefix("export "))
    run = "\\n".join(line.replace("'", "'\\''") for line in ["#!/bin/sh", *found["runscript"]])
    lines.append(f"RUN rm /post && printf '{run}\\n' >/runscript && chmod 755 /runscript")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(dockerfile(file.read()), end="")
