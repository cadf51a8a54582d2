#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Copies what gst-trt needs of the Debian or Ubuntu that this runs in, so that an image has nothing else: no package manager, no shell tools
# but a few, and of GStreamer what reads, decodes, encodes and writes videos. packaging/Containerfile runs it.
#
#   packaging/image.sh FOLDER [PACKAGE…]     PACKAGE: its libraries are taken too, such as those of libnvinfer10
#
# The packages of GStreamer and gst-plugin-trt must be installed. What is taken of a package counts as that package in /var/lib/dpkg/status
# of the folder, which scanners for vulnerabilities read.
set -euo pipefail

folder=${1:?the folder to fill}
shift

# Plugins of GStreamer, by the names of their files.
plugins=(
    coreelements typefindfunctions app playback autodetect imagefreeze
    videoconvertscale videorate videofilter videocrop videotestsrc compositor audioconvert audioresample                    # frames
    soup hls dash adaptivedemux2 rtsp rtp rtpmanager rtponvif sdpelem srtp udp tcp rtmp2 srt gio video4linux2 multifile # sources
    isomp4 matroska avi flv mpegtsdemux mpegtsmux mpegpsdemux ogg asf multipart icydemux y4mdec ivfparse wavparse           # files
    videoparsersbad audioparsers opusparse jpegformat rawparse codectimestamper codecalpha
    libav nvcodec openh264 x264 vpx aom jpeg png webp
)
# For probes and for whoever looks into a container.
programs=(gst-trt bash sh cat chmod env id ls mkdir sleep)

libraries=$(ldconfig -p | sed -n 's|.*=> \(.*\)/libgstreamer-1\.0\.so\.0$|\1|p' | head -n 1)
libraries=$(realpath "${libraries:?GStreamer is not installed}")

# What is started or loaded by its name.
roots() {
    local each
    for each in "${programs[@]}"; do command -v "$each"; done
    for each in "${plugins[@]}"; do
        each=$libraries/gstreamer-1.0/libgst$each.so
        if [ -e "$each" ]; then echo "$each"; else echo "image.sh: there is no $each" >&2; fi
    done
    find "$libraries/gstreamer1.0" -name gst-plugin-scanner
    ls "$libraries/libsoup-3.0.so.0" "$libraries/gio/modules/libgiognutls.so" # HTTP and TLS
    for each in "$@"; do dpkg --listfiles "$each" | grep '\.so[.0-9]*$' || true; done
}

# Each file with the links on its way.
with_links() {
    local file to
    while read -r file; do
        file=$(realpath "$(dirname "$file")")/$(basename "$file")
        echo "$file"
        while [ -L "$file" ]; do
            to=$(readlink "$file")
            case $to in /*) ;; *) to=$(dirname "$file")/$to ;; esac
            file=$(realpath "$(dirname "$to")")/$(basename "$to")
            echo "$file"
        done
    done | sort -u
}

lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
roots "$@" | sort -u >"$lists/roots"
{
    cat "$lists/roots"
    # The loader is named without an arrow. A library that is missing stays missing, and its users say so.
    xargs ldd <"$lists/roots" 2>/dev/null | sed -n 's|.*=> \(/[^ ]*\) (0x.*|\1|p; s|^[[:space:]]*\(/[^ ]*\) (0x.*|\1|p'
} | sort -u | with_links >"$lists/files"

# What programs read: time zones, certificates, names of hosts, the locale.
for each in base-files tzdata; do
    dpkg --listfiles "$each" | grep -v -e '^/usr/share/\(doc\|lintian\)/' -e '^/usr/share/zoneinfo/\(posix\|right\)/' -e '^/\.$'
done >>"$lists/files"
find /etc/ssl/certs/ca-certificates.crt /etc/nsswitch.conf /usr/lib/locale/C.utf8 /etc/gst-trt /etc/ld.so.conf /etc/ld.so.conf.d \
    "$libraries/gio/modules/giomodule.cache" >>"$lists/files"

# Packages that something is taken of. With /usr merged into /, packages name their files with or without it.
sed 's|^/usr/|/|' "$lists/files" | sort -u >"$lists/short"
for list in /var/lib/dpkg/info/*.list; do
    # A folder belongs to many packages.
    if sed 's|^/usr/|/|' "$list" | grep -Fxf "$lists/short" | while read -r file; do
        if [ -f "$file" ] || [ -f "/usr$file" ]; then echo "$file"; fi
    done | grep -q .; then
        list=${list##*/}
        echo "${list%.list}"
    fi
done >"$lists/packages"
sed 's|:.*||; s|.*|/usr/share/doc/&/copyright|' "$lists/packages" | while read -r file; do
    if [ -e "$file" ]; then realpath "$file"; fi
done >>"$lists/files"

mkdir -p "$folder"
for each in bin sbin lib lib64; do
    if [ -L "/$each" ]; then cp --no-dereference "/$each" "$folder/$each"; fi
done
# Folders of the system are as they are there. /usr/lib and others are real ones, the links above lead to them.
sort -u "$lists/files" | while read -r file; do
    case $file in /bin/* | /sbin/* | /lib/* | /lib64/*) file=$(realpath --no-symlinks "$(realpath "$(dirname "$file")")/$(basename "$file")") ;; esac
    if [ -e "$file" ] || [ -L "$file" ]; then echo ".$file"; fi
done | sort -u >"$lists/paths"
tar --create --directory=/ --no-recursion --files-from="$lists/paths" | tar --extract --directory="$folder" --keep-directory-symlink
ldconfig -r "$folder"

mkdir -p "$folder/var/lib/dpkg"
awk -v packages="$lists/packages" '
    BEGIN {
        while ((getline line <packages) > 0) { sub(/:.*/, "", line); is_taken[line] = 1 }
        RS = ""; FS = "\n"; ORS = "\n\n"
    }
    { name = $1; sub(/^Package: /, "", name); if (name in is_taken) print }' /var/lib/dpkg/status >"$folder/var/lib/dpkg/status"

# The user of the image. Any other can run it too, so the folders are as /tmp is: all may write, and none removes files of others.
cat >"$folder/etc/passwd" <<'END'
root:x:0:0:root:/root:/usr/sbin/nologin
gst-trt:x:10001:10001:gst-trt:/var/lib/gst-trt:/usr/sbin/nologin
END
printf 'root:x:0:\ngst-trt:x:10001:\n' >"$folder/etc/group"
chmod 755 "$folder/etc/gst-trt"
chmod 644 "$folder"/etc/gst-trt/* "$folder/etc/passwd" "$folder/etc/group"
chgrp -R root "$folder/etc/gst-trt"
install -d --mode=1777 "$folder/tmp" "$folder/var/tmp" "$folder/var/cache/gst-trt" "$folder/var/lib/gst-trt" "$folder/data"
install -d --mode=755 "$folder/dev" "$folder/proc" "$folder/sys" "$folder/run" "$folder/opt" "$folder/models"
install -D --mode=755 "$(dirname "${BASH_SOURCE[0]}")/health.sh" "$folder/usr/libexec/gst-trt-health"
