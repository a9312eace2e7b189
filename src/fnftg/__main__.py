import sys

from fnftg.cli import main

sys.exit(main())
