"""held.py OUT LIMIT COMMAND...: runs a command in its place, and writes the bytes that it held at
most (resident) to OUT. LIMIT: "none", "group:FOLDER" (a control group to enter), "data:BYTES"."""

import os
import resource
import sys


def enter(limit):
    kind, _, value = limit.partition(":")
    if kind == "group":
        with open(os.path.join(value, "cgroup.procs"), "w") as file:
            file.write("0")
    elif kind == "data":
        resource.setrlimit(resource.RLIMIT_DATA, (int(value), int(value)))


def main():
    out, limit, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    pid = os.fork()
    if pid == 0:
        enter(limit)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(pid, 0)
    with open(out, "w") as file:
        file.write("%d" % (usage.ru_maxrss * 1024))
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
