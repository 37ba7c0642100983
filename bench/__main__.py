"""`python -m bench WORK`, in a clone."""

from bench.commands import bench

if __name__ == "__main__":
    bench(prog_name="python -m bench")
