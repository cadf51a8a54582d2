#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Reads a queue of RabbitMQ: rabbit_queue.py PORT QUEUE [--bind EXCHANGE KEY] [--tls FOLDER]. It makes the queue, one that outlives
restarts, prints "ready", and then the text of each message. FOLDER has ca.pem, client.pem and client.key."""

import argparse
import ssl

import pika

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("queue")
parser.add_argument("--bind", nargs=2)
parser.add_argument("--tls")
arguments = parser.parse_args()

options = None
if arguments.tls:
    context = ssl.create_default_context(cafile=f"{arguments.tls}/ca.pem")
    context.load_cert_chain(f"{arguments.tls}/client.pem", f"{arguments.tls}/client.key")
    options = pika.SSLOptions(context, "localhost")
channel = pika.BlockingConnection(pika.ConnectionParameters("localhost", arguments.port, ssl_options=options)).channel()
channel.queue_declare(arguments.queue, durable=True)
if arguments.bind:
    channel.queue_bind(arguments.queue, *arguments.bind)
print("ready", flush=True)
for method, properties, body in channel.consume(arguments.queue):
    assert properties.content_type == "application/json", properties
    print(body.decode(), flush=True)
    channel.basic_ack(method.delivery_tag)
