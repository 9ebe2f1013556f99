#!/bin/sh
# az_mpi in one file, made by `python -m az_mpi pack`. It takes the place of `python run_dist.py` in a job: the first rank
# of a host unpacks what follows the last line into a folder on the host's own disk, and all ranks of the host start there.
# Where that cannot be done, the rank says why and starts from the checkout.
name=@NAME@ kib=@KIB@ header_bytes=@HEADER_BYTES@
python=@PYTHON@ checkout=@CHECKOUT@ site_packages=@SITE_PACKAGES@
home=@HOME@ base_python=@BASE_PYTHON@ # home: empty where the Python is packed too
export AZ_MPI_COMMIT=@COMMIT@

libraries=${LD_LIBRARY_PATH-} # mpirun puts those of the checkout first, where every command below would look
unset LD_LIBRARY_PATH
wait_s=900 # longest wait for another rank that unpacks
pack=$0
base=${AZ_MPI_LOCAL:-/tmp}/az_mpi-$(id -u)
copy=$base/$name
failed=$base/$name.failed.$PPID # all ranks of a job on this host have one parent: one of them tries, and the others know

why_not() { # print why this host's disk cannot be used, or nothing
    command -v flock >/dev/null && command -v tar >/dev/null && command -v gzip >/dev/null || { echo "flock, tar or gzip is missing" && return; }
    mkdir -m 700 "$base" 2>/dev/null
    if [ -h "$base" ] || ! [ -d "$base" ] || ! [ -O "$base" ]; then echo "$base is not a folder of this user" && return; fi
    chmod 700 "$base"
    (: >>"$base/$name.lock") 2>/dev/null || echo "$base cannot be written to"
}

unpack() { # make the copy; print why that failed, or nothing
    rm -f "$base/$name".failed.*
    : >"$failed" || { echo "$base is full" && return; }
    rm -rf "$copy" "$copy.new"
    for lock in "$base"/*.lock; do # copies of other packs that no process uses
        [ "$lock" = "$base/$name.lock" ] || flock -n -x "$lock" rm -rf "${lock%.lock}" "${lock%.lock}.new"
    done
    free_kib=$(df -Pk "$base" | { read -r _ && read -r _ _ _ free _ && echo "$free"; })
    if [ "$free_kib" -lt $((kib + kib / 10)) ]; then
        echo "$base has $((free_kib / 1024)) MiB free and needs $((kib / 1024 + kib / 10240))" && return
    fi
    if ! { mkdir "$copy.new" && tail -c +$((header_bytes + 1)) "$pack" | tar -xzif - -C "$copy.new"; } >&2; then
        rm -rf "$copy.new" && echo "it could not be unpacked there" && return
    fi
    mv "$copy.new" "$copy"
    [ -n "$home" ] || home=$copy/base/bin
    mkdir -p "$copy/venv/bin" && ln -s "$base_python" "$copy/venv/bin/python"
    printf 'home = %s\ninclude-system-site-packages = false\n' "$home" >"$copy/venv/pyvenv.cfg"
    echo "$copy/program" >"$copy/venv/$site_packages/az_mpi-packed.pth"
    if ! "$copy/venv/bin/python" -I -c 'import sys; from az_mpi.launch import packed; packed.settle(sys.argv[1])' "$checkout" >&2; then
        rm -rf "$copy" && echo "programs do not run there (noexec?)" && return
    fi
    rm -f "$failed" && touch "$copy/ready"
}

why=$(why_not)
if [ -z "$why" ]; then
    exec 9>>"$base/$name.lock"
    flock -s -w $wait_s 9 # held as long as this process lives: nobody removes what it uses
    if ! [ -e "$copy/ready" ]; then
        flock -u 9
        if flock -x -w $wait_s 9 && ! [ -e "$copy/ready" ] && ! [ -e "$failed" ]; then why=$(unpack 9>&-); fi
        flock -u 9
        flock -s -w $wait_s 9
    fi
fi
if [ -z "$why" ] && [ -e "$copy/ready" ]; then
    if [ -e "$copy/venv/lib/libmpi.so" ]; then export OPAL_PREFIX="$copy/venv"; fi # where Open MPI finds its files
    export LD_LIBRARY_PATH="$copy/venv/lib:$copy/base/lib${libraries:+:$libraries}"
    exec "$copy/venv/bin/python" "$copy/program/run_dist.py" "$@"
fi
[ -z "$libraries" ] || export LD_LIBRARY_PATH="$libraries"
[ -z "$why" ] || echo "az_mpi: $(uname -n): $why; its ranks start from $checkout" >&2
exec "$python" "$checkout/run_dist.py" "$@"
