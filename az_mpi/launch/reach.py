"""How a launch reaches its hosts: by ssh here, or through the folder of a rendezvous, see meeting.py."""

from az_mpi.launch import check


class BySsh:
    """Hosts that ssh reaches; whether they are there is known by asking them only."""

    agent = None  # what mpirun calls in place of ssh
    shell = staticmethod(check.ssh)

    def present(self, names):
        """Return those of the hosts `names` of which it is worth asking."""
        return set(names)

    def attend(self, names):
        """Return the signals that the mpirun of a job on the hosts `names` is to get. Called while it runs."""
        return []
