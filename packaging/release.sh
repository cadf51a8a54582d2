#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds all that a release hands out, into one folder with checksums:
#
#   packaging/release.sh [OPTION…] [FOLDER]     FOLDER: a new one, default target/releases/VERSION
#
#   source    the sources of the commit             deb      the Debian package
#   chart     the Helm chart                        wheel    the Python package
#   sbom      all crates in the binaries, with      image    the container, by podman or docker
#             versions and licences (CycloneDX)     crates   each crate as crates.io takes it
#   arm64     Debian package and wheel for 64-bit ARM, where "--require arm64" asks for it: packaging/arm64.sh, which needs root
#
#   --require PART    ends at once if this part cannot be built here; "all": each that is not left out, but arm64
#   --without PART    leaves this part out
#   --no-verify       does not build the crates out of what was packed
#   --allow-dirty     takes changes that are not committed; sources and chart are those of the commit
#
# A part whose tools are missing is named at the end, with what it lacks. A part that fails ends the run. FOLDER is there when all of it is.
# GST_TRT_PROFILE=dev takes the build of the tests, which is not to be handed out. Debian packages and wheels run on systems that are not
# older than this one.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"

PARTS=(source chart sbom crates deb wheel image arm64)
declare -A NAMES=(
    [source]="sources" [chart]="Helm chart" [sbom]="bill of materials" [crates]="crates"
    [deb]="Debian package" [wheel]="wheel" [image]="image" [arm64]="Debian package and wheel for 64-bit ARM"
)

# is_in WORD WORD…: whether the first is among the others.
is_in() {
    local word=$1 each
    shift
    for each in "$@"; do [ "$each" != "$word" ] || return 0; done
    return 1
}

# ---------------------------------------------------------------------------- what is asked for

REQUIRED=() WITHOUT=() VERIFY=yes DIRTY='' FOLDER=''
while [ $# != 0 ]; do
    case $1 in
        --require | --without)
            [ $# -ge 2 ] || fail "$1 needs the name of a part: ${PARTS[*]}."
            is_in "$2" "${PARTS[@]}" || [ "$1 $2" = "--require all" ] || fail "there is no part \"$2\"; the parts are ${PARTS[*]}."
            if [ "$1" = --require ]; then REQUIRED+=("$2"); else WITHOUT+=("$2"); fi
            shift
            ;;
        --no-verify) VERIFY='' ;;
        --allow-dirty) DIRTY=yes ;;
        --help | -h) sed -n '/^set /q; /^#!/d; /SPDX/d; s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -* | '') fail "there is no option \"$1\"; --help lists them." ;;
        *)
            [ -z "$FOLDER" ] || fail "there is one folder, $FOLDER, and not also $1."
            FOLDER=$(realpath --canonicalize-missing -- "$1")
            ;;
    esac
    shift
done
for part in "${WITHOUT[@]}"; do
    ! is_in "$part" "${REQUIRED[@]}" || fail "--require and --without both name $part; leave out one of them."
done

need_cargo
cd "$ROOT"
VERSION=$(packaging/versions.py) || fail "the versions above differ, so nothing was built; make them the same."
[ -n "$FOLDER" ] || FOLDER=$(realpath --canonicalize-missing -- "$TARGET/releases/$VERSION")
# Files of another run would get checksums too, as if they were of this one.
if [ -e "$FOLDER" ] && { [ ! -d "$FOLDER" ] || [ -n "$(ls -A "$FOLDER")" ]; }; then
    fail "$FOLDER is there already and is not an empty folder; remove it, or name another one."
fi

# Sources without history may lie in the checkout of another project.
COMMIT='' changed=''
if cdup=$(git rev-parse --show-cdup 2>/dev/null) && [ -z "$cdup" ]; then
    COMMIT=$(git rev-parse --verify HEAD)
    changed=$(git status --porcelain)
    [ -n "$DIRTY" ] || [ -z "$changed" ] ||
        fail "these files are not committed, so nobody could build the release again; commit them, or add --allow-dirty:"$'\n'"$changed"
    # The time in what is packed, so that the same commit gives the same files.
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH
fi

# ---------------------------------------------------------------------------- what can be built here
# Each of these prints what is missing, if anything is, and fails then.

is_checkout() {
    [ -n "$COMMIT" ] || { echo "this is not a checkout of git"; return 1; }
}

has_tools() {
    local tool
    for tool in "$@"; do command -v "$tool" >/dev/null || { echo "there is no $tool; install what docs/install.md names"; return 1; }; done
}

has_gstreamer() {
    has_tools cc pkg-config || return 1
    pkg-config --atleast-version=1.20 gstreamer-1.0 2>/dev/null ||
        { echo "there is no GStreamer 1.20 or later for compilers; install libgstreamer1.0-dev and libgstreamer-plugins-base1.0-dev"; return 1; }
}

has_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || { echo "python3 cannot make virtual environments; install python3-venv"; return 1; }
}

# The program that makes images: one that is installed may still have no service that answers, or no rights.
container_tool() {
    local tool
    for tool in podman docker; do
        ! timeout 20 "$tool" info >/dev/null 2>&1 || { echo "$tool"; return 0; }
    done
    return 1
}

# It takes gigabytes and an hour, so no other part brings it.
can_cross_build() {
    [ "$(uname -m)" = x86_64 ] || { echo "it is built on an x86-64 machine"; return 1; }
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || { echo "it needs root or sudo"; return 1; }
    has_tools apt-get readelf && has_venv
}

can_build() {
    case $1 in
        source | chart) is_checkout ;;
        sbom) ;; # cargo and Python, which are there
        crates) [ -z "$VERIFY" ] || has_gstreamer ;;
        deb) has_gstreamer && has_tools dpkg dpkg-deb dpkg-shlibdeps dpkg-architecture strip ;;
        wheel) has_gstreamer && has_tools readelf strip && has_venv ;;
        arm64) can_cross_build ;;
        image) container_tool >/dev/null || { echo "neither podman nor docker runs here"; return 1; } ;;
    esac
}

# ---------------------------------------------------------------------------- how it is built
# Each puts its files into $STAGE.

build_source() {
    git archive --format=tar --prefix="gst-plugin-trt-$VERSION/" "$COMMIT" | gzip -9n >"$STAGE/gst-plugin-trt-$VERSION.tar.gz"
}

# What `helm package` makes: the folder of the chart by its name, without what .helmignore names. Helm, where it is, reads it.
build_chart() {
    local scratch=$SCRATCH/chart chart=$STAGE/gst-trt-$VERSION.tgz
    mkdir -p "$scratch"
    git archive --format=tar "$COMMIT" packaging | tar --extract --directory "$scratch"
    # It has links to what is next to it.
    cp --recursive --dereference "$scratch/packaging/chart" "$scratch/gst-trt"
    rm -f "$scratch/gst-trt/.helmignore"
    tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --directory "$scratch" gst-trt | gzip -9n >"$chart"
    ! command -v helm >/dev/null || helm show chart "$chart" >/dev/null
}

build_sbom() {
    packaging/sbom.py >"$STAGE/gst-plugin-trt-$VERSION.cdx.json"
}

build_crates() {
    local target=$TARGET/publish options=() crate
    [ -n "$VERIFY" ] || options+=(--no-verify)
    [ -z "$DIRTY" ] || options+=(--allow-dirty)
    forget_packed_crates "$target"
    cargo package --locked --workspace --quiet --target-dir "$target" "${options[@]}"
    packaging/versions.py --crates | while read -r crate; do
        cp "$target/package/$crate-$VERSION.crate" "$STAGE" || fail "cargo has packed no version $VERSION of $crate."
    done
}

build_deb() {
    local package found
    package=$(packaging/deb.sh "$STAGE")
    found=$(dpkg-deb --field "$package" Version)
    [ "$found" = "$VERSION" ] || fail "$(basename "$package") has the version $found, and not $VERSION."
}

build_wheel() {
    local wheel
    wheel=$(python/build.sh "$STAGE")
    wheel=$(basename "$wheel")
    [[ $wheel == "gsttrt-$VERSION-"*.whl ]] || fail "the wheel is $wheel, and its version is to be $VERSION."
}

build_image() {
    local tool options=()
    tool=$(container_tool)
    # OCI's own format has no HEALTHCHECK.
    [ "$tool" != podman ] || options+=(--format docker)
    # It is of no commit where there are changes.
    [ -z "$COMMIT" ] || [ -n "$changed" ] || options+=(--label "org.opencontainers.image.revision=$COMMIT")
    "$tool" build "${options[@]}" --file packaging/Containerfile --tag "gst-trt:$VERSION" \
        --label "org.opencontainers.image.version=$VERSION" .
    "$tool" save "gst-trt:$VERSION" | gzip -n >"$STAGE/gst-trt-$VERSION-image-$(uname -m).tar.gz"
}

build_arm64() {
    local package
    packaging/arm64.sh "$STAGE"
    packaging/sbom.py --target aarch64-unknown-linux-gnu >"$STAGE/gst-plugin-trt-$VERSION-arm64.cdx.json"
    package=gst-plugin-trt_${VERSION}_arm64.deb
    [ -e "$STAGE/$package" ] || fail "there is no $package among what was built, so its version is another one."
    compgen -G "$STAGE/gsttrt-$VERSION-*_aarch64.whl" >/dev/null || fail "the wheel for 64-bit ARM has another version than $VERSION."
}

checksums() {
    local files
    cd "$STAGE"
    files=(*)
    sha256sum -- "${files[@]}" >SHA256SUMS
    sha256sum --check --quiet SHA256SUMS
}

# ---------------------------------------------------------------------------- all of it

WANTED=() LEFT=()
for part in "${PARTS[@]}"; do
    if is_in "$part" "${WITHOUT[@]}"; then
        LEFT+=("${NAMES[$part]} ($part): left out, as asked")
    elif [ "$part" = arm64 ] && ! is_in arm64 "${REQUIRED[@]}"; then
        LEFT+=("${NAMES[$part]} ($part): --require arm64 builds it")
    elif reason=$(can_build "$part"); then
        WANTED+=("$part")
    elif is_in "$part" "${REQUIRED[@]}" || is_in all "${REQUIRED[@]}"; then
        fail "the part $part is required, and cannot be built here: $reason."
    else
        LEFT+=("${NAMES[$part]} ($part): $reason")
    fi
done
[ "${#WANTED[@]}" != 0 ] || fail "no part is left to be built."

# The folder appears when it is complete. What is built for it lies next to it until then, on the same disk.
umask 022
SCRATCH=$(mkdir -p "$(dirname "$FOLDER")" && mktemp -d "$FOLDER.XXXXXX") ||
    fail "$FOLDER cannot be made, as the line above says; name another folder, or let this user write there."
end() {
    local status=$?
    rm -rf "$SCRATCH"
    [ "$status" = 0 ] || [ -z "$STEP" ] || echo "$ME: \"$STEP\" failed, so there is no $FOLDER." >&2
}
trap end EXIT
STAGE=$SCRATCH/stage
mkdir "$STAGE"

for part in "${WANTED[@]}"; do step "${NAMES[$part]}" "build_$part"; done
(checksums)
[ ! -d "$FOLDER" ] || rmdir "$FOLDER"
mv --no-target-directory "$STAGE" "$FOLDER"

printf '\n%s\n' "$FOLDER"
(cd "$FOLDER" && stat --format='%12s  %n' -- *)
[ "${#LEFT[@]}" = 0 ] || { printf '\nNot in it:\n'; printf '    %s\n' "${LEFT[@]}"; }
[ "${GST_TRT_PROFILE:-dist}" = dist ] || printf '\nIts binaries are of the profile %s; do not hand them out.\n' "$GST_TRT_PROFILE"
[ -z "$changed" ] || printf '\nIt holds changes that are in no commit.\n'
grep -q "^## \[$VERSION\]" CHANGELOG.md || printf '\nCHANGELOG.md has no section [%s]; what is new is still under "Unreleased".\n' "$VERSION"
