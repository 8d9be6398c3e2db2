"""Talks with a command on a terminal.

prompt.py COLUMNS TALK COMMAND...

TALK is a JSON list of pairs: wait until the first is shown, after what was waited for before, then type
the second. Prints everything that was shown, and ends as the command does. What is not shown within a
minute ends it with 99.
"""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

columns, talk, *command = sys.argv[1:]
talk = json.loads(talk)
pid, terminal = pty.fork()
if pid == 0:
    # Here and not in the parent: the command must not run before the size is set.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(columns), 0, 0))
    os.execvp(command[0], command)
shown = b""
seen = 0
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    if talk and (at := shown.find(talk[0][0].encode(), seen)) >= 0:
        expected, typed = talk.pop(0)
        seen = at + len(expected.encode())
        os.write(terminal, typed.encode())
    if not select.select([terminal], [], [], 1)[0]:
        continue
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    shown += part
else:
    os.kill(pid, signal.SIGKILL)
sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(99 if talk or code < 0 else code)
