import sys

from servers.cli import main

sys.exit(main())
