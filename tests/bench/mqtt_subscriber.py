#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Prints the messages of an MQTT topic, each exactly once, also where the server is away for a while.

    mqtt_subscriber.py PORT TOPIC

The first line is "subscribed". mosquitto_sub will not do: it keeps a message that the server sends again in addition to the first copy, and
prints it once more when the server comes to the same number, 65,535 messages later, in place of the new one
(https://github.com/eclipse-mosquitto/mosquitto/issues/1751). Needs Debian's python3-paho-mqtt.
"""
import sys

import paho.mqtt.client as mqtt


def main():
    port, topic = int(sys.argv[1]), sys.argv[2]
    # The first argument since version 2.
    version = [mqtt.CallbackAPIVersion.VERSION1] if hasattr(mqtt, "CallbackAPIVersion") else []
    client = mqtt.Client(*version, client_id="mqtt-subscriber", clean_session=False)
    client.on_connect = lambda *_: client.subscribe(topic, qos=2)
    said = []

    def subscribed(*_):
        if not said:
            said.append(True)
            print("subscribed", flush=True)

    client.on_subscribe = subscribed
    client.on_message = lambda _client, _data, message: print(message.payload.decode(), flush=True)
    client.reconnect_delay_set(1, 1)
    client.connect("localhost", port)
    client.loop_forever()


if __name__ == "__main__":
    sys.exit(main())
