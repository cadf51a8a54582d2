#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
# Of the Debian package: what dpkg runs before its files go.
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now gst-trt.service || true
fi
