#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
# Of the Debian package: what dpkg runs when its files are there.
set -e

# Without systemd there is no service, and no user is needed.
if [ "$1" = configure ] && command -v systemd-sysusers >/dev/null; then
    systemd-sysusers gst-trt.conf
    # At an upgrade they are as somebody may have changed them.
    if [ -z "$2" ]; then
        install --directory --owner=gst-trt --group=gst-trt /var/lib/gst-trt
        # There may be passwords of cameras in it.
        chown root:gst-trt /etc/gst-trt
        chmod 750 /etc/gst-trt
    fi
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload
        # One that runs goes on with the new program.
        systemctl try-restart gst-trt.service || true
    fi
fi
