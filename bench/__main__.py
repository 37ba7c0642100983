"""`python -m bench WORK`, in a clone."""

from bench.commands import bench
from bench.peers.command import peers

bench.add_command(peers)

if __name__ == "__main__":
    bench(prog_name="python -m bench")
