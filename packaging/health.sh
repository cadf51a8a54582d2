#!/bin/bash
# SPDX-License-Identifier: MPL-2.0
# Whether the service in this container is well, for HEALTHCHECK of packaging/Containerfile: asks /healthz, without a client for HTTP.
#
#   GST_TRT_HTTP=127.0.0.1:8090     where `listen` of [http] has another port
set -u

# Other commands, such as detect, have no HTTP. They are well while they run.
mapfile -d '' command </proc/1/cmdline
# A process that begins as another program has none for a moment, and no handlers of signals.
[ "${#command[@]}" -gt 0 ] || exit 1
case " ${command[*]:1} " in
    *" serve "*) ;;
    *) exit 0 ;;
esac
address=${GST_TRT_HTTP:-127.0.0.1:8090}
exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || exit 1
printf 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 5 -u 3 _ status _ || exit 1
[ "$status" = 200 ]
