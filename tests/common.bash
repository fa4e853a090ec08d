# shellcheck shell=bash
# Provides what every Bats file loads first: `load common`. See tests/README.

bats_require_minimum_version 1.5.0
set -o pipefail

SPX_ROOT=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
# Build folder that is tested; make's suites for sanitizers set another.
SPX_BUILD=${SPX_BUILD:-$SPX_ROOT/build}
case $SPX_BUILD in /*) ;; *) SPX_BUILD=$SPX_ROOT/$SPX_BUILD ;; esac
# Test data that are not part of the project.
SPX_SHARED=${SPX_SHARED:-../shared}
case $SPX_SHARED in /*) ;; *) SPX_SHARED=$SPX_ROOT/$SPX_SHARED ;; esac
PATH=$SPX_BUILD/bin:$SPX_BUILD/tests/helpers:$PATH
export SPX_ROOT SPX_BUILD SPX_SHARED PATH

# Every test starts in a folder of its own, which Bats removes.
setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return
}

# For setup_file: the data set of the manual's examples (man/README), in $BATS_FILE_TMPDIR/data.
example_data() {
    mkdir "$BATS_FILE_TMPDIR/data" || return
    (cd "$BATS_FILE_TMPDIR/data" && bash "$SPX_ROOT/tests/examples.sh") >&2
}

# need_shared FILE...: skip the test where these test data are absent (paths relative to SPX_SHARED).
need_shared() {
    local f
    for f in "$@"; do
        [ -e "$SPX_SHARED/$f" ] || skip "no $f in SPX_SHARED"
    done
}

# need_program NAME...: skip the test where a program that the project does not install is absent.
need_program() {
    local p
    for p in "$@"; do
        command -v "$p" >/dev/null || skip "$p is not installed"
    done
}

# need_terminal: skip the test where no pseudo-terminal can be had: build chroots have no /dev/pts. on_terminal COMMAND
# runs a command line on one.
need_terminal() {
    need_program script
    on_terminal true </dev/null >/dev/null 2>&1 || skip "no pseudo-terminal can be opened here"
}

on_terminal() { script -qec "$1" /dev/null; }

# wait_for PID COMMAND...: until COMMAND succeeds, however long that takes; fails when the process ends before.
wait_for() {
    local pid=$1
    shift
    until "$@" >/dev/null; do
        kill -0 "$pid" 2>/dev/null || {
            echo "the process ended before: $*"
            return 1
        }
        sleep 0.01
    done
}

# find_python MODULE...: sets SPX_PYTHON to a Python that has these modules; fails where there is none.
find_python() {
    local p m
    for p in "${SPX_PYTHON:-python3}" /usr/bin/python3; do
        for m in "$@"; do
            "$p" -c "import $m" 2>/dev/null || continue 2
        done
        export SPX_PYTHON=$p
        return
    done
    return 1
}

# need_hook [MODULE...]: skip the test where hooks were not built, or where no Python has NumPy and these modules. Sets
# SPX_PYTHON.
need_hook() {
    [ -e "$SPX_BUILD/lib/specpipe/hook-python.so" ] || skip "built without Python's headers"
    find_python numpy "$@" || skip "no Python with numpy $*"
}

# edit_h5 FILE STATEMENTS [FROM]: changes FILE, or first makes it a copy of FROM, in Python: f is the open file (h5py), np
# NumPy. The test is skipped where these are absent, and fails where a statement does.
edit_h5() {
    find_python numpy h5py || skip "no Python with numpy and h5py"
    [ $# -lt 3 ] || cp "$3" "$1"
    "$SPX_PYTHON" -c 'import sys, h5py, numpy as np
with h5py.File(sys.argv[1], "r+") as f:
    exec(sys.argv[2])' "$1" "$2"
}

# fails_with STATUS TEXT COMMAND...: the command must exit with STATUS, say TEXT (a shell pattern) on stderr, print
# nothing on stdout, and leave no file behind in the current folder: no output and no temporary file.
fails_with() {
    local want=$1 text=$2 before after
    shift 2
    before=$(ls -A)
    run --separate-stderr "$@"
    after=$(ls -A)
    # run sets them.
    # shellcheck disable=SC2154
    if [ "$status" -ne "$want" ]; then
        echo "exit status $status instead of $want: $*"
        echo "$stderr"
        return 1
    fi
    if [ -n "$output" ]; then
        echo "output of a program that failed: $output"
        return 1
    fi
    # TEXT is a pattern on purpose.
    # shellcheck disable=SC2053
    if [[ $stderr != $text ]]; then
        echo "message is not like '$text': $stderr"
        return 1
    fi
    if [ "$before" != "$after" ]; then
        echo "files left behind: $after"
        return 1
    fi
}

# make_camera NAME [OPTION...]: simulates an exposure of a small camera for the calibration programs: 30 fibres of arm z,
# of which 10 see the sky alone, 8740 to 8940 Angstrom with bright sky lines, without hits and bad columns. Further
# options of specx-sim go last and win, such as --shift wave --throughput 0.1 --fiber-scatter 0.02 (wrong PSF).
#   NAME.h5        image, fibermap and the PSF that is written     NAME-frame.h5   its frame, in bins of 0.8 Angstrom
#   NAME-truth.h5  truth, and with --shift the PSF that it was drawn through
make_camera() {
    specx-sim -q --arm z --fibers 30 --sky-fibers 10 --wavelength 8740,8940 --cosmics 0 --bad-columns 0 \
        --truth "$1-truth.h5" -o "$1.h5" "${@:2}" &&
        specx-extract -q --wavelength 8740,8940,0.8 "$1.h5" -o "$1-frame.h5"
}

# make_right_camera NAME [OPTION...]: as make_camera, with --shift (if not given: wave); NAME-right.h5 is the frame that is
# extracted through the PSF that the image was drawn through.
make_right_camera() {
    make_camera "$1" --shift wave "${@:2}" &&
        specx-sim -q --arm z --fibers 30 --sky-fibers 10 --wavelength 8740,8940 --cosmics 0 --bad-columns 0 \
            --shift wave "${@:2}" -o "$1-image.fits" &&
        fits2h5 -q "$1-image.fits" -o "$1-image.h5" &&
        specx-extract -q --wavelength 8740,8940,0.8 "$1-truth.h5" "$1-image.h5" -o "$1-right.h5"
}

# All programs, by their sources.
programs() {
    (cd "$SPX_ROOT/tools" && ls ./*.c) | sed 's|^\./||; s|\.c$||' | grep -v '^TEMPLATE$'
}

# same_values FILE PATH FILE PATH: the same numbers; attributes may differ.
same_values() {
    diff <(h5dump -A 0 -y -w 1 -m %.17g -d "$2" "$1" | sed '1,/ DATA {/d') <(h5dump -A 0 -y -w 1 -m %.17g -d "$4" "$3" | sed '1,/ DATA {/d') >differences
}
