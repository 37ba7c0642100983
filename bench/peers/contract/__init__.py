"""What the programs of one language share. The runner copies it beside each program."""
