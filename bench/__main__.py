"""`python -m bench WORK`, in a clone."""

from bench.commands import bench
from bench.compare_command import compare_command
from bench.peers.command import peers

bench.add_command(peers)
bench.add_command(compare_command)

if __name__ == "__main__":
    bench(prog_name="python -m bench")
