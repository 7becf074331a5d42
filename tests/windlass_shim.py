"""Run by the tests as `windlass`: asks the zygote beside it to run the command, and ends as the command does.

Imports nothing that is not built in, so that it starts in some milliseconds. Signals are passed on; if it is killed
itself, the zygote kills the command.
"""

import _socket
import marshal
import os
import select
import signal
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    deaf = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as in the background of a shell
    command, early = 0, []

    def pass_on(number: int, _frame: object) -> None:
        if command:
            os.kill(command, number)
        else:
            early.append(number)

    for number in PASSED_ON:  # also what is ignored here: the command may have a handler for it
        signal.signal(number, pass_on)
    request = {"argv": [sys.argv[1], *sys.argv[3:]], "env": dict(os.environ), "cwd": os.getcwd(), "deaf": deaf}
    told = marshal.dumps(request)
    zygote = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    zygote.connect(sys.argv[2])
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    zygote.sendmsg([len(told).to_bytes(4, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    zygote.sendall(told)
    command = int.from_bytes(zygote.recv(4), "little")
    for number in early:
        os.kill(command, number)
    select.select([os.pidfd_open(command)], [], [])
    told = marshal.dumps({"wait": command})
    zygote.sendall(len(told).to_bytes(4, "little") + told)
    code = int.from_bytes(zygote.recv(4), "little", signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
