"""Numba's cache of compiled kernels, changed so that it can only save time.

What cannot be read from the cache is compiled, and what cannot be written to it is compiled again by the next process;
with Numba alone both are errors. This holds for every kernel of a process, those of users' own files too. Numba has no
setting for it, so `install` changes Numba's own class of caches, as soon as that is loaded.
"""

import hashlib
import os
import sys
from contextlib import suppress
from typing import Any

from az_mpi.core.printing import environment_rank

CACHING = "numba.core.caching"
TRIAL_BYTES = 2**23  # what the kernels of one game and its search take
DIGITS = 12  # of hashes in names of files

# Why this process could not keep a kernel, in words; None: it has kept all that it compiled.
failure: str | None = None


def install(sources: str) -> None:
    """Change Numba's cache now, or as soon as Numba is imported.

    sources: what compiled code depends on besides the kernel's own file. Code of other sources is not used."""
    if CACHING in sys.modules:
        _change(sys.modules[CACHING], sources)
    else:  # Numba is large: only what needs it imports it
        sys.meta_path.insert(0, _Finder(sources))


def trial(num_bytes: int = TRIAL_BYTES) -> str | None:
    """Return why compiled kernels cannot be kept in their folder now, None if they can. Writes so many bytes there for
    a moment."""
    import tempfile  # here, since it is slow to load

    folder = os.environ["NUMBA_CACHE_DIR"]
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(num_bytes))
            file.flush()
            os.fsync(file.fileno())  # a network file system tells only now that a quota is used up
    except OSError as error:
        return error.strerror
    return None


class _Finder:
    """Finds Numba's module of caches as Python does, and has it changed once it is loaded."""

    def __init__(self, sources: str):
        self._sources = sources

    def find_spec(self, name, path=None, target=None):
        if name != CACHING:
            return None
        import importlib.machinery

        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_change(module):
                load(module)
                _change(module, self._sources)

            spec.loader.exec_module = load_and_change
        return spec


def _change(caching, sources):
    cache = caching.Cache
    init = cache.__init__
    load = cache.load_overload
    save = cache.save_overload
    if not caching.config.CACHE_DIR:  # Numba was imported before this package
        caching.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]

    def __init__(self, py_func):
        try:
            init(self, py_func)
            self._cache_file = _Entries(caching.IndexDataCacheFile, self, sources)
        except Exception:  # there is no folder for it, or its file cannot be read
            self._cache_path = None
            self._cache_file = _Nothing()
            self.disable()
            if why := trial(1):
                _tell(why)

    def load_overload(self, sig, target_context):
        try:
            return load(self, sig, target_context)
        except Exception:
            return None  # damaged, or it names a module that is no longer there

    def save_overload(self, sig, data):
        try:
            save(self, sig, data)
        except OSError as error:
            _tell(error.strerror)
        except Exception as error:
            caching.warnings.warn(f"{self._name} is not kept in the cache: {error!r}", caching.NumbaWarning)

    cache.__init__, cache.load_overload, cache.save_overload = __init__, load_overload, save_overload


class _Entries:
    """The files of one kernel, in place of Numba's index with numbered files: a pair of files for each signature.

    Numba's index names the modules of all that it lists, and cannot be read where one of these is missing. Of two
    processes that add to it at the same time, one could later get the other's code. Here the names of a pair depend on
    all that its code depends on; also on the module, since compiled code names it, and a file can be loaded under
    several names."""

    def __init__(self, make: Any, cache: Any, sources: str):
        """make: Numba's IndexDataCacheFile. cache: its Cache, of one kernel."""
        stamp = cache._impl.locator.get_source_stamp()
        self._folder = cache._cache_path
        self._stem = cache._impl.filename_base
        self._content = _hash(stamp, sources)
        self._module = cache._py_func.__module__
        self._make = lambda name: make(cache_path=self._folder, filename_base=name, source_stamp=stamp)

    def _entry(self, key):
        return self._make(f"{self._stem}-{self._content}-{_hash(self._module, key)}")

    def load(self, key):
        return self._entry(key).load(key)

    def save(self, key, data):
        entry = self._entry(key)
        entry.flush()  # a damaged one is replaced
        entry.save(key, data)
        # What was compiled from an older content of the file. It may have been on another line there.
        self._remove(lambda name: f"-{self._content}-" not in name)

    def flush(self):
        self._remove(lambda name: f"-{self._content}-" in name)

    def _remove(self, chosen):
        function = self._stem.rpartition("-")[0] + "-"
        for name in os.listdir(self._folder):
            if name.startswith(function) and chosen(name):
                with suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))


class _Nothing:
    """In place of the files of a kernel that cannot be kept."""

    def load(self, key):
        return None

    def save(self, key, data):
        pass

    def flush(self):
        pass


def _hash(*what):
    return hashlib.sha256(repr(what).encode()).hexdigest()[:DIGITS]


def _tell(why):
    """Say once, on rank 0 before there are logs of all ranks, that what is compiled cannot be kept."""
    global failure
    if failure is not None:
        return
    import logging  # here, since it is slow to load

    failure = why
    logger = logging.getLogger("az_mpi")
    if logger.handlers or environment_rank() == 0:
        logger.warning(
            "compiled kernels cannot be kept in %s: %s\n  each start compiles again those that are not "
            "there: make room, or set NUMBA_CACHE_DIR to a folder with room that this user may write to",
            os.environ["NUMBA_CACHE_DIR"],
            why,
        )
