"""Runs a command on a terminal and answers its question.

terminal.py COLUMNS WAIT_FOR ANSWER BEFORE COMMAND...

Waits until WAIT_FOR is printed, runs the shell command BEFORE, types ANSWER, and prints everything
that was shown; ends as the command does. An empty WAIT_FOR: nothing is typed.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

columns, wait_for, answer, before, *command = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    # Here and not in the parent: the command must not run before the size is set.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(columns), 0, 0))
    os.execvp(command[0], command)
shown = b""
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    if not select.select([terminal], [], [], 1)[0]:
        continue
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    shown += part
    if wait_for and wait_for.encode() in shown:
        wait_for = ""
        subprocess.run(["sh", "-c", before], check=True)
        os.write(terminal, answer.encode())
sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
