# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Debian and Ubuntu systems in folders, made by debootstrap, for tests/compat.sh, tests/packages.sh and packaging/arm64.sh, which source
# this file behind pipelines/setup.sh.
#
# Functions of the second part work on a folder: RELEASE is its Debian or Ubuntu, NAME that in words, FOLDER its path.

CACHE=$(realpath --canonicalize-missing "${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt")

# ------------------------------------------------------------- as the user

need_debootstrap() {
    [ "${TRT_SETUP:-}" = skip ] ||
        need_packages "what makes systems in folders" debootstrap debian-archive-keyring
    mkdir -p "$CACHE"
}

# start_second_part SCRIPT ARGUMENT… -- VARIABLE=VALUE…: starts SCRIPT again as root, in a mount namespace of its own, with SECOND_PART=1.
start_second_part() {
    local as_root=() arguments=()
    while [ "$1" != -- ]; do arguments+=("$1") && shift; done
    shift
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "Debian's folders need root; run this as root or install sudo."
        as_root=(sudo)
    fi
    # Copies instead of mounts would not do: Rust's tools find themselves by /proc.
    "${as_root[@]}" unshare --mount true 2>/dev/null ||
        fail "mounts are not permitted here; in a container, start it with --cap-add SYS_ADMIN."
    exec "${as_root[@]}" env "HOME=$HOME" "PATH=$PATH" "XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache}" \
        "CI=${CI:-}" SECOND_PART=1 "$@" unshare --mount --propagation private "${arguments[@]}"
}

# ------------------------------------------------------------- as root

# only_one_at_a_time FILE: of the scripts that use the same folders.
only_one_at_a_time() {
    exec 9>"$CACHE/$1"
    flock --nonblock 9 || fail "another run uses these folders of $CACHE; wait for its end."
}

# Files are removed below, which must never reach through a mount that is not ours.
nothing_mounted() {
    ! cut -d' ' -f5 /proc/self/mountinfo | grep -F -- "${FOLDER// /\\040}" ||
        fail "something is mounted in $FOLDER (the lines above); unmount it first."
}

is_ubuntu() {
    case $RELEASE in jammy | noble) ;; *) return 1 ;; esac
}

# mirror_of Debian|Ubuntu: the mirror that this machine takes it from; nothing on other distributions, where
# debootstrap's own default is right.
mirror_of() {
    # shellcheck disable=SC2016  # apt expands REPO_URI and RELEASE
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' "Origin: $1" "Label: $1" |
        sed -n '/-security$/d; s/^\(https\{0,1\}:[^ ]*\) .*/\1/p' | head -n 1 || true
}

# A folder and its build take 6 GB; one that fills the disk fails somewhere else.
enough_disk() {
    local free
    free=$(df --output=avail --block-size=G "$CACHE" | tail -n 1 | tr -dc 0-9)
    [ "$free" -ge 8 ] || fail "$CACHE has $free GB of free disk, and 8 are needed; make room and try again."
}

# What reaches the mirror from this machine (name servers, proxies, certificates) does so in the folder.
share_network_settings() {
    local settings=$1/etc/apt/apt.conf.d/90host certificates=/etc/ssl/certs/ca-certificates.crt
    cp --dereference /etc/resolv.conf "$1/etc/resolv.conf"
    apt-config dump | grep -E '^Acquire::(https?::|Check-)' >"$settings" || true
    # A copy of sid's archive may be older than its lists say they may become.
    [ "$RELEASE" != sid ] || echo 'Acquire::Check-Valid-Until "false";' >>"$settings"
    [ ! -e $certificates ] || install -D -m 644 $certificates "$1$certificates"
}

# Folders of one release begin as copies of one bare system.
# Made under another name first: a folder with its name is always a whole one.
make_folder() {
    local bare=$CACHE/bare-$RELEASE
    [ ! -d "$FOLDER" ] || return 0
    enough_disk
    # More than one script may want it.
    (
        flock 8
        [ -d "$bare" ] || quietly "A bare system of $RELEASE goes into $bare" make_bare "$bare"
    ) 8>"$bare.lock" || return
    [ "$FOLDER" != "$bare" ] || return 0
    echo "$NAME goes into $FOLDER"
    rm -rf --one-file-system "$FOLDER.new" && cp -a "$bare" "$FOLDER.new" && mv "$FOLDER.new" "$FOLDER"
}

# In one chain, because `set -e` does not hold in a command that is asked whether it failed.
make_bare() {
    local mirror options=(--variant=minbase)
    mirror=$(mirror_of Debian)
    if is_ubuntu; then
        mirror=$(mirror_of Ubuntu)
        # Half of GStreamer's plugins are in universe.
        options+=("--keyring=$UBUNTU_KEYS" "--components=main,universe")
        bring_ubuntu_keys || return
        bring_ubuntu_scripts || return
    fi
    rm -rf --one-file-system "$1.new" &&
        debootstrap "${options[@]}" "$RELEASE" "$1.new" ${mirror:+"$mirror"} &&
        # Nothing here must survive a power cut, and no manuals are needed.
        printf '%s\n' force-unsafe-io 'path-exclude=/usr/share/doc/*' 'path-exclude=/usr/share/man/*' \
            >"$1.new/etc/dpkg/dpkg.cfg.d/test-folder" &&
        mv "$1.new" "$1"
}

UBUNTU_KEYS=$CACHE/ubuntu-archive-keyring.gpg

# Debian 12 has no package of Ubuntu's keys. There they come out of Debian 13, whose own keys it has.
bring_ubuntu_keys() {
    local keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    # What is called from here works on this folder.
    local RELEASE=trixie NAME="Debian 13" FOLDER=$CACHE/bare-trixie
    if [ -e $keys ]; then
        cp --dereference $keys "$UBUNTU_KEYS"
        return
    fi
    make_folder && share_network_settings "$FOLDER" && unpack_keys && cp --dereference "$FOLDER/opt/ubuntu-keys$keys" "$UBUNTU_KEYS"
}

# Next to what belongs to the system, which stays bare. Its lists of packages are those of its first day.
unpack_keys() {
    # shellcheck disable=SC2016  # the shell inside expands them
    inside sh -ec '
        cd "$(mktemp -d)"
        apt-get --quiet download ubuntu-keyring || { apt-get --quiet update; apt-get --quiet download ubuntu-keyring; }
        dpkg-deb --extract ubuntu-keyring_*.deb /opt/ubuntu-keys
        rm -r "$PWD"'
}

# An Ubuntu that is later than debootstrap is made by the same script as all others. The folder is named to debootstrap alone: the system
# has its own, and stays as it is.
bring_ubuntu_scripts() {
    local system=/usr/share/debootstrap own=$CACHE/debootstrap
    [ ! -e "$system/scripts/$RELEASE" ] || return 0
    rm -rf "$own" && cp -a "$system" "$own" && ln -s gutsy "$own/scripts/$RELEASE" && export DEBOOTSTRAP_DIR="$own"
}

# What goes before chroot, such as another namespace.
BEFORE_CHROOT=()

inside() {
    # shellcheck disable=SC2016  # the shell inside expands them
    "${BEFORE_CHROOT[@]}" chroot "$FOLDER" env --ignore-environment \
        HOME=/root LANG=C.UTF-8 PATH=/opt/rust/bin:/usr/local/bin:/usr/bin:/usr/sbin \
        "CARGO_HOME=${COMPAT_CARGO:-/opt/cargo}" CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never "CI=${CI:-}" \
        CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 \
        sh -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$ROOT" "$@"
}

missing_inside() {
    local package
    for package in "$@"; do
        # shellcheck disable=SC2016  # dpkg expands Status
        inside dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null |
            grep -qx installed || echo "$package"
    done
}

# In one chain, as above.
install_inside() {
    inside apt-get --yes --quiet update &&
        inside env DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet install --no-install-recommends "$@" &&
        inside apt-get clean
}

# Only the files of these packages: by what it depends on, the analytics library's brings 1 GB of OpenCV.
unpack_inside() {
    # shellcheck disable=SC2016  # the shell inside expands it
    inside sh -ec '
        cd "$(mktemp -d)"
        apt-get --quiet update
        apt-get --quiet download "$@"
        for package in *.deb; do dpkg-deb --extract "$package" /; done
        rm -r "$PWD"' sh "$@"
}

# lend SOURCE PLACE: SOURCE is to be read, not written, at PLACE in the folder.
lend() {
    mkdir -p "$FOLDER$2"
    mount --bind "$1" "$FOLDER$2"
    mount -o remount,bind,ro "$FOLDER$2"
}

kernel_files() {
    mount -t proc proc "$FOLDER/proc"
    mount --rbind /sys "$FOLDER/sys"
    mount --rbind /dev "$FOLDER/dev"
}

lend_project() {
    lend "$COMPAT_CARGO/registry" "$COMPAT_CARGO/registry"
    lend "$ROOT" "$ROOT"
}

# The folder's own build is where the tests look for it; the host's is hidden.
own_build() {
    mkdir -p "$FOLDER/build"
    mount --bind "$FOLDER/build" "$FOLDER$ROOT/target"
}
