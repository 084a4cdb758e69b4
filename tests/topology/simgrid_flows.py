"""Run by the interpreter that has SimGrid: `PLATFORM.xml FLOWS.json`; prints the finish of each flow in seconds.

Flows are [start in seconds, source, target, bytes]; hosts are numbered in the order of their names' numbers.
"""

import json
import sys
from pathlib import Path

from simgrid import Actor, Comm, Engine, Host, this_actor

OPTIONS = {
    "network/model": "CM02",
    "network/TCP-gamma": 0,
    "network/crosstraffic": 0,
    "network/weight-S": 0,
    "network/latency-factor": 1,
    "network/bandwidth-factor": 1,
    "maxmin/precision": 1e-6,
    "surf/precision": 1e-13,
}
engine = Engine(["flows", "--log=root.thresh:error", *(f"--cfg={name}:{value}" for name, value in OPTIONS.items())])
engine.load_platform(sys.argv[1])
given = json.loads(Path(sys.argv[2]).read_text("utf-8"))
finished = [0.0] * len(given["flows"])


def send(number, start, target, size):
    this_actor.sleep_until(start)
    Comm.sendto_async(this_actor.get_host(), Host.by_name(target), size).wait()
    finished[number] = Engine.clock


for number, (start, source, target, size) in enumerate(given["flows"]):
    Actor.create(
        f"flow{number}", Host.by_name(given["hosts"][source]), send, number, start, given["hosts"][target], size
    )
engine.run()
json.dump(finished, sys.stdout)
