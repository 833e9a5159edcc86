"""Has one GridFTP server send a file to another over UDT.

`globus-url-copy -udt` sent no datagram to a server without authentication: the data went over TCP, without a
word. So this client speaks to both servers itself (GFD.20; SITE SETNETSTACK is the Grid Community Toolkit's),
and fails if no datagrams went.

    python3 bench/gridftp_udt.py FROM_PORT FILE TO_PORT FILE
"""

from __future__ import annotations

import ftplib
import sys
from pathlib import Path

ADDRESS = "127.0.0.1"
#: The longest wait for a reply of a server, s.
PATIENCE_S = 900.0
#: The fewest datagrams that a file may take: a quarter of what it takes with packets of 1,500 bytes.
BYTES_PER_DATAGRAM = 4 * 1_456


def datagrams() -> int:
    """Datagrams of UDP that this host has sent."""
    names, counts = (
        line.split()[1:]
        for line in Path("/proc/net/snmp").read_text().splitlines()
        if line.startswith("Udp:")
    )
    return int(dict(zip(names, counts, strict=True))["OutDatagrams"])


def connect(port: int) -> ftplib.FTP:
    """Logs in and asks for data over UDT, in blocks."""
    server = ftplib.FTP(timeout=PATIENCE_S)
    server.connect(ADDRESS, port)
    server.login()
    for command in ("SITE SETNETSTACK udt", "DCAU N", "TYPE I", "MODE E"):
        server.sendcmd(command)
    return server


def finish(server: ftplib.FTP) -> None:
    """Waits for the end of a transfer, past the reports of its progress."""
    while not server.getresp().startswith("2"):
        pass


def main() -> int:
    """Copies; 1 if it did not go over UDT."""
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    from_port, source, to_port, target = sys.argv[1:]
    before = datagrams()
    sender, receiver = connect(int(from_port)), connect(int(to_port))
    where = receiver.sendcmd("PASV")
    receiver.putcmd(f"STOR {target}")
    sender.sendcmd("PORT " + where[where.index("(") + 1 : where.index(")")])
    sender.putcmd(f"RETR {source}")
    finish(sender)
    finish(receiver)
    sent = datagrams() - before
    if sent < Path(source).stat().st_size / BYTES_PER_DATAGRAM:
        print(f"only {sent} datagrams went: this was not UDT", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
