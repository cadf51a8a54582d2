#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Makes the man pages of gst-trt and of its subcommands from what `--help` prints, and prints the folder.
#
#   packaging/man.sh PROGRAM FOLDER      PROGRAM: a gst-trt that runs on this machine
set -euo pipefail

[ $# = 2 ] || { echo "man.sh: the arguments are the program and the folder for its pages" >&2; exit 1; }
program=$1 folder=$2
mkdir -p "$folder"
version=$("$program" --version)

# page NAME [SUBCOMMAND]: help as text becomes roff. Options and commands are a column, then two or more spaces, then what they do.
page() {
    local name=$1
    shift
    "$program" "$@" --help | awk -v name="$name" -v version="$version" -v others="${commands[*]}" '
        function plain(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); return text }
        # A line of roff must not begin with what roff takes for a command.
        function line(text) { print (text ~ /^[.\x27]/ ? "\\&" : "") plain(text) }
        function leave_example() { if (in_example) print ".fi\n.RE"; in_example = 0 }
        NR == 1 {
            printf ".TH %s 1 \"\" \"%s\" \"\"\n.SH NAME\n%s \\- ", toupper(plain(name)), version, plain(name)
            line($0)
            next
        }
        sub(/^Usage: /, "") { print ".SH SYNOPSIS"; line($0); next }
        /^[A-Z][a-z]+:$/ { leave_example(); print ".SH " toupper(substr($0, 1, length($0) - 1)); next }
        /^ +[^ ].*/ && match($0, /[^ ]  +[^ ]/) {
            term = substr($0, 1, RSTART); sub(/^ +/, "", term)
            print ".TP"; line(term); line(substr($0, RSTART + RLENGTH - 1))
            next
        }
        /^  / { if (!in_example) print ".RS\n.nf"; in_example = 1; line(substr($0, 3)); next }
        /^$/ { leave_example(); is_new = 1; next }
        { if (is_new) print ".SH NOTES"; is_new = 0; line($0) }
        END {
            leave_example()
            print ".SH SEE ALSO"
            if (name != "gst-trt") print "gst\\-trt(1),"
            else for (i = split(others, all, " "); i > 0; i--) print "gst\\-trt\\-" plain(all[i]) "(1),"
            print "gst\\-launch\\-1.0(1)"
        }' >"$folder/$name.1"
}

mapfile -t commands < <("$program" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\)  .*/\1/p' | grep -vx help | sort -r)
page gst-trt
for command in "${commands[@]}"; do page "gst-trt-$command" "$command"; done
echo "$folder"
