#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""A web server with TLS. It prints its port, and then the body of each request: https_server.py CERTIFICATE KEY [AUTHORITY]

With an authority it wants that its clients have a certificate of it."""

import http.server
import ssl
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


certificate, key, *authority = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
if authority:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority[0])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
