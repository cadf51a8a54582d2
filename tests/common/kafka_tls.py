#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""TLS before a Kafka broker that has none: kafka_tls.py PORT CERTIFICATE KEY. It prints its own port, and then the name in the
certificate of each client.

What the broker says of itself names its own port, so that is replaced in its answers."""

import asyncio
import ssl
import sys

behind, certificate, key = int(sys.argv[1]), *sys.argv[2:]


async def carry(reader, writer, names):
    """Messages begin with their length. Both names of this machine have the same."""
    try:
        while True:
            length = await reader.readexactly(4)
            message = await reader.readexactly(int.from_bytes(length, "big"))
            for old, new in names:
                message = message.replace(old, new)
            writer.write(length + message)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def serve():
    async def client(reader, writer):
        print(writer.get_extra_info("peercert")["subject"][0][0][1], flush=True)
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", behind)
        ours = b"localhost" + port.to_bytes(4, "big")
        names = [(name + behind.to_bytes(4, "big"), ours) for name in (b"localhost", b"127.0.0.1")]
        await asyncio.gather(carry(reader, to_broker, []), carry(from_broker, writer, names))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    server = await asyncio.start_server(client, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    print(port, flush=True)
    await server.serve_forever()


asyncio.run(serve())
