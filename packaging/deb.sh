#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds the Debian package gst-plugin-trt and prints its path: the plugin, the C library, the program gst-trt.
#
#   packaging/deb.sh [FOLDER]      FOLDER: default target/debian
#
# A package runs on systems that are not older than the one that it is built on, and on older ones that have all that its dependencies
# name: build it on Debian 12 for Debian 12 and 13 and Ubuntu 22.04 and 24.04. Needs what the plugin is built with, and dpkg-dev. Its
# maintainer is who builds it, as DEBFULLNAME and DEBEMAIL say.
#
# For another kind of machine, as packaging/arm64.sh does: GST_TRT_BUILT is the folder of a build that is there, without symbols for
# debuggers, DEB_HOST_ARCH names the architecture as dpkg does, and programs for it run here.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"

need_cargo
cd "$ROOT"
folder=${1:-$TARGET/debian}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
chmod 755 "$stage"

name=gst-plugin-trt
version=$(cargo pkgid --package gst-trt | sed 's/.*[#@]//')
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
architecture=${DEB_HOST_ARCH:-$(dpkg --print-architecture)}
libraries=/usr/lib/$(dpkg-architecture -a "$architecture" -qDEB_HOST_MULTIARCH)

built=${GST_TRT_BUILT:-$(packaging/build.sh plugin library program)}

# put FROM TO [MODE]
put() {
    install -D --mode "${3:-644}" "$1" "$stage$2"
}

# The same without what only debuggers read.
put_binary() {
    put "$1" "$2" "${3:-644}"
    [ -n "${GST_TRT_BUILT:-}" ] || strip --strip-unneeded "$stage$2"
}

put_binary "$built/libgsttrt.so" "$libraries/gstreamer-1.0/libgsttrt.so"
put_binary "$built/libgsttrt_capi.so" "$libraries/libgsttrt-1.so.0"
ln -s libgsttrt-1.so.0 "$stage$libraries/libgsttrt-1.so"
put_binary "$built/gst-trt" /usr/bin/gst-trt 755
put capi/include/gsttrt.h /usr/include/gsttrt-1.0/gsttrt.h
unit=/usr/lib/systemd/system/gst-trt.service
put packaging/gst-trt.service "$unit"
sed -i 's|/usr/local/bin/|/usr/bin/|' "$stage$unit" # by hand, the program is installed in /usr/local
put packaging/gst-trt.sysusers /usr/lib/sysusers.d/gst-trt.conf
put packaging/config.toml /etc/gst-trt/config.toml
sed -n 's/^ExecStart[A-Za-z]*=\([^ ]*\).*/\1/p' "$stage$unit" | while read -r program; do
    [ -x "$stage$program" ] || fail "gst-trt.service starts $program, which is not in the package."
done

mkdir -p "$stage$libraries/pkgconfig"
cat >"$stage$libraries/pkgconfig/gsttrt-1.0.pc" <<END
prefix=/usr
libdir=\${prefix}${libraries#/usr}
includedir=\${prefix}/include/gsttrt-1.0

Name: gsttrt-1.0
Description: $(sed -n 's/^description = "\(.*\)"/\1/p' capi/Cargo.toml)
Version: $version
Libs: -L\${libdir} -lgsttrt-1
Cflags: -I\${includedir}
END

for page in "$(packaging/man.sh "$built/gst-trt" "$stage/man")"/*; do
    gzip -9n "$page"
    put "$page.gz" "/usr/share/man/man1/$(basename "$page").gz"
done
rm -r "$stage/man"
# Where each shell looks for completions of packages.
completions() {
    mkdir -p "$(dirname "$stage$2")"
    "$built/gst-trt" completions "$1" >"$stage$2"
}
completions bash /usr/share/bash-completion/completions/gst-trt
completions fish /usr/share/fish/vendor_completions.d/gst-trt.fish
completions zsh /usr/share/zsh/vendor-completions/_gst-trt

docs=/usr/share/doc/$name
put packaging/config.toml "$docs/examples/config.toml"
put packaging/prometheus/gst-trt.rules.yml "$docs/examples/gst-trt.rules.yml"
put packaging/grafana/gst-trt.json "$docs/examples/gst-trt.grafana.json"
for page in README.md SECURITY.md CONTRIBUTING.md docs/*.md docs/*.svg docs/*/*.md docs/images/* examples/*; do
    [ ! -f "$page" ] || put "$page" "$docs/$page" # where links from page to page find them
done
# A link to what is not in the package leads to the repository.
# shellcheck disable=SC2016  # perl expands them
(cd "$stage$docs" && find ./* -name '*.md' -exec env "repository=$repository" perl -MFile::Basename -i -pe '
    s{\]\((?!\w+:)([^)#\s]+)}{
        my ($link, $path) = ($&, dirname($ARGV) . "/$1");
        1 while $path =~ s#[^/]+/\.\./##;
        -e $path ? $link : "]($ENV{repository}/blob/main/" . substr($path, 2)
    }ge' {} +)
gzip -9n <CHANGELOG.md >"$stage/changelog.gz"
put "$stage/changelog.gz" "$docs/changelog.gz"
rm "$stage/changelog.gz"
{
    printf 'Source: %s\n\n' "$repository"
    cat LICENSE
    printf '\nThe binaries contain these crates, with their licences, from https://crates.io:\n\n'
    cargo tree --locked --package gst-trt --package gsttrt-capi --edges normal --prefix none --format '{p}: {l}' |
        sed 's/ (\*)$//; s/ ([^)]*)//' | sort -u
} >"$stage/copyright"
put "$stage/copyright" "$docs/copyright"
rm "$stage/copyright"

# What the binaries need, by the symbols that they use. dpkg-shlibdeps wants a source package.
needed() {
    mkdir "$stage/debian"
    printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$name" "$name" >"$stage/debian/control"
    (cd "$stage" && dpkg-shlibdeps -O "usr/bin/gst-trt" ".$libraries/libgsttrt-1.so.0" ".$libraries/gstreamer-1.0/libgsttrt.so") |
        sed -n 's/^shlibs:Depends=//p'
    rm -r "$stage/debian"
}
depends=$(needed)
[ -n "$depends" ] || fail "dpkg-shlibdeps names no packages for the binaries."

mkdir "$stage/DEBIAN"
cat >"$stage/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: $architecture
Maintainer: ${DEBFULLNAME:-The maintainers of gst-plugin-trt} <${DEBEMAIL:-maintainers@localhost}>
Section: libs
Priority: optional
Installed-Size: $(du --summarize --block-size=1K --apparent-size "$stage" | cut -f1)
Depends: $depends, libgstreamer1.0-0 (>= 1.20), gstreamer1.0-plugins-base, gstreamer1.0-plugins-good
Recommends: gstreamer1.0-libav, gstreamer1.0-plugins-ugly, gstreamer1.0-plugins-bad, gstreamer1.0-x, gstreamer1.0-tools
Suggests: librdkafka1
Homepage: $repository
Description: object detection in GStreamer, with TensorRT or on the CPU
 The elements trtpreprocess, trtinfer, trtnms, trttrack, trtmatch,
 trtanalytics, trtoverlay and trtpublish run ONNX models and TensorRT engines
 of detectors, classifiers, poses, masks, rotated boxes and maps on videos. The
 program gst-trt does so without a pipeline to write, and the library
 libgsttrt-1 for C without GStreamer.
 .
 TensorRT, OpenVINO and ONNX Runtime are found at run time. Without them models
 run on the CPU.
END
echo "libgsttrt-1 0 $name (>= $version)" >"$stage/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$stage/DEBIAN/triggers"
# What somebody has changed stays at an upgrade.
(cd "$stage" && find etc -type f -printf '/%p\n') >"$stage/DEBIAN/conffiles"
for script in postinst prerm; do put packaging/$script.sh /DEBIAN/$script 755; done

package=$folder/${name}_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$stage" "$package" >&2
echo "$package"
