#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Installs the Debian package in fresh systems as a user does, and detects in the sample clip.
#
#   tests/packages.sh               Debian 12 and 13, Ubuntu 24.04; needs root or sudo
#   tests/packages.sh trixie        only that one; the others are bookworm and noble, and jammy is Ubuntu 22.04 with GStreamer 1.20
#   tests/packages.sh filled        quickly: Debian 13 in the folder that tests/compat.sh has filled, which has GStreamer already
#
# The package is that of packaging/deb.sh, which is built first, or the one that GST_TRT_DEB names, such as that of a release. A folder of a
# bare system is kept in the user's cache (200 MB each); what is installed lies above it in memory, and is gone at the end.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"
# shellcheck source=tests/folders.sh
. "$ROOT/tests/folders.sh"

SUITES=("$@")
[ $# != 0 ] || SUITES=(bookworm trixie noble)

choose() {
    SUITE=$1 RELEASE=$1 FOLDER=$CACHE/bare-$1
    case $1 in
        bookworm) NAME="Debian 12" ;;
        trixie) NAME="Debian 13" ;;
        noble) NAME="Ubuntu 24.04" ;;
        jammy) NAME="Ubuntu 22.04" ;;
        filled)
            NAME="Debian 13 with GStreamer" RELEASE=trixie FOLDER=$CACHE/trixie
            [ -d "$FOLDER" ] || fail "there is no $FOLDER; run tests/compat.sh trixie first."
            ;;
        *) fail "there is no suite \"$1\"; use bookworm, trixie, noble, jammy or filled" ;;
    esac
}

# A bare system, and a layer above it for what is installed.
fresh_system() {
    make_folder
    local layer=$CACHE/layer-$SUITE
    mkdir -p "$layer"
    mount -t tmpfs tmpfs "$layer"
    mkdir "$layer/upper" "$layer/work" "$layer/system"
    mount -t overlay overlay -o "lowerdir=$FOLDER,upperdir=$layer/upper,workdir=$layer/work" "$layer/system"
    FOLDER=$layer/system
    share_network_settings "$FOLDER"
    rm -f "$FOLDER/etc/dpkg/dpkg.cfg.d/test-folder" # a user's system has documentation
    kernel_files
    cp "$PACKAGE_FILE" "$ROOT/tests/data/sample.mp4" "$ROOT/tests/models/shapes.onnx" "$FOLDER/root"
}

# The two commands of docs/install.md, in the folder of the download.
# shellcheck disable=SC2016  # the shell inside expands it
install_and_detect() {
    # A fresh system of a user knows what there is.
    quietly "Lists of packages" inside apt-get --quiet update
    local started=$SECONDS
    quietly "apt install" inside sh -ec 'cd /root; DEBIAN_FRONTEND=noninteractive apt install --yes ./gst-plugin-trt_*.deb'
    local installed=$SECONDS
    inside sh -ec 'cd /root; gst-trt detect sample.mp4 --model shapes.onnx'
    echo "$NAME: apt install $((installed - started)) s, boxes after $((SECONDS - started)) s"
}

# The image of packaging/Containerfile, as a folder: it is small, and any user can run the program in it, with a root that is read-only.
image() {
    local packages bytes folder=$FOLDER/image
    mapfile -t packages < <(grep -oE '\b(ca-certificates|tzdata|glib-networking|libsoup-3[^ ]*|gstreamer1\.0-plugins-(bad|ugly)|gstreamer1\.0-libav)\b' \
        "$ROOT/packaging/Containerfile")
    quietly "What the image is made of" install_inside "${packages[@]}"
    cp "$ROOT/packaging/image.sh" "$ROOT/packaging/health.sh" "$FOLDER/root"
    inside /root/image.sh /image
    # The program of a release has 26 MB.
    bytes=$(find "$folder" -type f -not -path "$folder/usr/bin/gst-trt" -printf '%s\n' | awk '{ bytes += $1 } END { print bytes }')
    echo "the image has $((bytes / 1000000)) MB and the program"
    [ "$bytes" -lt 270000000 ] || fail "the image is to have less than 300 MB; see what packaging/image.sh takes."
    (cd "$folder" && find . -type f -perm /6000 | grep .) && fail "the image has programs that give rights."

    mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
    for each in tmp data var/lib/gst-trt var/cache/gst-trt; do mount -t tmpfs -o mode=1777 tmpfs "$folder/$each"; done
    mount -t proc proc "$folder/proc"
    mount --bind /dev "$folder/dev"
    cp "$ROOT/tests/data/sample.mp4" "$ROOT/tests/models/shapes.onnx" "$folder/data"
    printf '[http]\nlisten = "127.0.0.1:8090"\n' >"$folder/data/config.toml"
    # shellcheck disable=SC2016  # the shell inside expands it
    unshare --net --pid --fork chroot --userspec 54321:0 "$folder" env --ignore-environment PATH=/usr/bin HOME=/var/lib/gst-trt \
        XDG_CACHE_HOME=/var/cache/gst-trt GST_REGISTRY=/tmp/registry.bin bash -ec '
        cd /data
        gst-trt detect sample.mp4 --model shapes.onnx
        ! touch /usr/bin/more 2>/dev/null
        report=$(gst-trt doctor) || true
        [[ $report == *"ok  chain on the CPU"* ]]'
    python3 "$ROOT/tests/data/score.py" "$ROOT/tests/data/sample.json" "$folder/data/sample-boxes.jsonl" \
        --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
    health "$folder"
    umount --recursive "$folder"
}

# Runs a program while the command of this process is empty, as it is between two programs and once the first thread has ended, and says
# whether that finds all well.
WITHOUT_COMMAND='
import ctypes, os, subprocess, sys, threading
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]  # of a thread
libc, first = ctypes.CDLL(None), ctypes.c_ulong(threading.get_ident())
def ask():
    libc.pthread_join(first, None)
    status = subprocess.run(sys.argv[1:]).returncode
    print("well" if status == 0 else "not well yet", flush=True)
    os._exit(0)
threading.Thread(target=ask).start()
libc.syscall(SYS_EXIT, 0)
'

# What HEALTHCHECK runs says that the service is well, and that it is not once nothing answers. The service is process 1, as in a container.
health() {
    local begins
    begins=$(unshare --pid --fork --mount-proc="$1/proc" python3 -c "$WITHOUT_COMMAND" chroot "$1" /usr/libexec/gst-trt-health)
    [ "$begins" != well ] || fail "the health check takes a container that begins for a well one."
    echo "a container that begins: $begins"
    # shellcheck disable=SC2016  # the shell inside expands it
    timeout 120 unshare --net --pid --fork --mount-proc="$1/proc" bash -ec '
        inside() { chroot --userspec 54321:0 "$1" env --ignore-environment PATH=/usr/bin HOME=/var/lib/gst-trt GST_REGISTRY=/tmp/registry.bin "${@:2}"; }
        ip link set lo up
        (
            # Each attempt is a program of its own.
            until inside "$1" /usr/libexec/gst-trt-health 2>/dev/null; do :; done
            ! inside "$1" env GST_TRT_HTTP=127.0.0.1:1 /usr/libexec/gst-trt-health 2>/dev/null
            echo "the service is well"
            kill -TERM 1
        ) &
        exec chroot --userspec 54321:0 "$1" env --ignore-environment PATH=/usr/bin HOME=/var/lib/gst-trt GST_REGISTRY=/tmp/registry.bin \
            gst-trt serve /data/config.toml' bash "$1"
}

# What came with it: the elements, the library, the files for compilers.
look_around() {
    python3 "$ROOT/tests/data/score.py" "$ROOT/tests/data/sample.json" "$FOLDER/root/sample-boxes.jsonl" \
        --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
    inside gst-inspect-1.0 trtinfer >/dev/null
    inside gst-trt doctor || true
    # shellcheck disable=SC2016  # the shell inside expands it
    inside sh -ec '
        ldconfig -p | grep -q "libgsttrt-1.so.0 "
        grep -q "^Version: " /usr/lib/*/pkgconfig/gsttrt-1.0.pc
        grep -q "Mozilla Public License" /usr/share/doc/gst-plugin-trt/copyright
        ! ldd /usr/lib/*/libgsttrt-1.so.0 | grep -E "gst|glib"
        # What somebody has changed in the configuration outlives the package, until it is purged.
        echo "# mine" >>/etc/gst-trt/config.toml
        apt-get --quiet --yes remove gst-plugin-trt >/dev/null
        ! ls /usr/lib/*/gstreamer-1.0/libgsttrt.so /usr/bin/gst-trt 2>/dev/null
        grep -q "^# mine" /etc/gst-trt/config.toml
        apt-get --quiet --yes purge gst-plugin-trt >/dev/null
        ! ls -d /etc/gst-trt 2>/dev/null'
}

# The service, on a system that has systemd and man. systemd does not run in a folder, so its unit is read here.
serve() {
    quietly "systemd, man" install_inside systemd man-db
    quietly "apt install" inside sh -ec 'cd /root; DEBIAN_FRONTEND=noninteractive apt-get install --yes ./gst-plugin-trt_*.deb'
    dead_links "$FOLDER/usr/share/doc/gst-plugin-trt"
    # shellcheck disable=SC2016  # the shell inside expands it
    inside bash -ec '
        for page in gst-trt gst-trt-detect gst-trt-serve; do man $page >/dev/null; done
        . /usr/share/bash-completion/completions/gst-trt
        [ "$(complete -p gst-trt)" ]
        ls /usr/share/fish/vendor_completions.d/gst-trt.fish /usr/share/zsh/vendor-completions/_gst-trt >/dev/null

        unit=/usr/lib/systemd/system/gst-trt.service
        value() { sed -n "s/^$1=//p" $unit; }
        systemd-analyze verify --man=no $unit
        start=$(value ExecStart) user=$(value User)
        dpkg --search "${start%% *}"
        # As the user of the service, and as nobody else.
        as() { exec setpriv --reuid "$1" --regid "$1" --init-groups "${@:2}"; }
        (as games true)
        ! (as games cat /etc/gst-trt/config.toml) 2>/dev/null
        (as "$user" gst-trt serve --check /etc/gst-trt/config.toml)

        cd "$(value WorkingDirectory)"
        mkfifo /root/journal
        as "$user" $start 2>/root/journal &
        while read -r line; do
            echo "$line"
            case $line in *"Started. http://"*) kill $! ;; esac
        done </root/journal
        wait $!'
}

# Links in the pages in this folder that lead to no file.
dead_links() {
    python3 - "$1" <<'END'
import pathlib, re, sys

root = pathlib.Path(sys.argv[1])
pages = sorted(root.rglob("*.md"))
links = [(page, link) for page in pages for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", page.read_text())]
dead = [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()]
print(f"links between the pages: {len(links)}")
sys.exit("These lead nowhere:\n" + "\n".join(dead) if dead or not links else 0)
END
}

if [ -z "${SECOND_PART:-}" ]; then
    for suite in "${SUITES[@]}"; do choose "$suite"; done
    need_debootstrap
    if [ -n "${GST_TRT_DEB:-}" ]; then
        built=$(realpath -- "$GST_TRT_DEB")
        [ -f "$built" ] || fail "there is no package $built; GST_TRT_DEB names it."
    else
        built=$("$ROOT/packaging/deb.sh")
    fi
    start_second_part "$ROOT/tests/packages.sh" "${SUITES[@]}" -- "PACKAGE_FILE=$built"
fi
trap count_steps EXIT
only_one_at_a_time packages.lock
for suite in "${SUITES[@]}"; do
    choose "$suite"
    nothing_mounted
    step "bare $NAME" fresh_system
    step "package on $NAME" install_and_detect
    [ "$suite" != bookworm ] || step "the image on $NAME" image
    step "what the package brought to $NAME" look_around
    step "the service on $NAME" serve
done
