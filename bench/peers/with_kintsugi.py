"""The program of compare.py for Kintsugi: kintsugi train -- python3 with_kintsugi.py small"""

import os
import sys

import nets

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import kintsugi

name = sys.argv[1]
build, loss = nets.net(name)
kintsugi.run_torch(name, build, loss, examples=nets.EXAMPLES, batch=nets.BATCHES[name], optimizer="adamw", **nets.ADAM)
