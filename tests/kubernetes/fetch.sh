#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Brings what tests/kubernetes needs from PyPI, and prints the folder for PYTHONPATH: Helm as a library, the schemas of Kubernetes.
set -euo pipefail

packages=(helm-python-sdk==0.2.2 kubernetes-validate==1.37.0 PyYAML==6.0.4)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/kubernetes
folder=$cache/$(printf '%s\n' "${packages[@]}" | sha256sum | cut -c 1-16)
if [ ! -d "$folder" ]; then
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/fetching.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    # Debian's python3 comes without pip, a virtual environment of it has one.
    python3 -m venv "$scratch/venv"
    echo "fetch.sh: downloading ${packages[*]}" >&2
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --only-binary=:all: \
        --target "$scratch/modules" "${packages[@]}" >&2
    # Wheels have no links, so the library is there three times.
    for name in "$scratch"/modules/helm_python/lib/libhelm_c.so*; do ln --force "$scratch/modules/helm_python/lib/libhelm_c.so" "$name" 2>/dev/null || true; done
    # The folder appears when it is complete, so an interrupted run is no harm.
    mv "$scratch/modules" "$folder"
fi
echo "$folder"
