#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""A server with TLS 1.3 that gives tickets, so that sessions can be resumed. It prints its port, and then the first line that each
client sends, and closes: tls_words.py CERTIFICATE KEY"""

import socket
import ssl
import sys
import threading

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
print(listener.getsockname()[1], flush=True)


def answer(client):
    try:
        with context.wrap_socket(client, server_side=True) as encrypted:
            print(encrypted.recv(4096).split(b"\r\n")[0].decode(), flush=True)
            # The ticket is read with what follows it.
            encrypted.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            encrypted.recv(1)
    except OSError:
        pass  # it does not trust this server


while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
