"""What pyproject.toml cannot say: a wheel holds the configurations, hostfiles, batch scripts and examples too, in
az_mpi/share. An editable install needs no copy, as they are in the checkout."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("configs", "examples", "hostfiles", "slurm")


class BuildWithShare(build_py):
    """Copies FOLDERS beside the modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in FOLDERS:
                target = Path(self.build_lib) / "az_mpi" / "share" / name
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(Path(__file__).parent / name, target, ignore=ignored, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithShare})
