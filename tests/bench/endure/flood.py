# SPDX-License-Identifier: MPL-2.0
"""Clients that ask a service as fast as it answers, 20 at a time: flood.py PORT SECONDS.

A process of its own, behind all others: clients of another machine would not take the processors of the cameras, nor of the service.
"""

import asyncio
import os
import sys
import time


async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /sources HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    while await reader.read(1 << 16):
        pass
    writer.close()


async def flood(port, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.gather(*(ask(port) for _ in range(20)), return_exceptions=True)
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    os.setpriority(os.PRIO_PROCESS, 0, 10)
    asyncio.run(flood(int(sys.argv[1]), float(sys.argv[2])))
