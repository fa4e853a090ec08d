#!/usr/bin/env bash
# Truth test: simulated exposures, reduced and compared with what was put in, beside the figures of the prototype of these
# methods (plain NumPy) and of desispec, which were measured on exposures of the same kind, not on the same ones.
# Usage: truth.sh FOLDER [CASE...]: report.txt and, with gnuplot, pictures. Cases, in the order of the report:
#     grid b r z artefacts real    extraction (`real` needs SPX_SHARED); faint: variance; reject: cosmic rays
#     model-z model-r sky spoilt   sky, and how far traces have moved; barycentric: grids; velocities
#     shift flat flux coadd        others of these programs
#     night                        all of them together, one effect at a time
# TRUTH_SEEDS=FIRST:LAST: exposures of sky, velocities, coadd and night; 1:2 without it. The first is that of all other
# cases. TRUTH_JOBS=N: that many cases at the same time, each in a folder of its name; 1 without it.
# The programs and helpers are found on the PATH. `make truth` runs all in BUILD/truth: 14 minutes of processor time. Exit
# status 1: a case is beyond its limits, or did not end.
#
# Functions are called by the names of cases, and variables are read in truth/*.bash.
# shellcheck disable=SC2034,SC2317
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
shift
all=(grid b r z artefacts real faint reject model-z model-r sky spoilt barycentric velocities shift flat flux coadd night)
cases=" ${*:-${all[*]}} "
seeds=${TRUTH_SEEDS:-1:2}
seed=${seeds%:*}
together=${TRUTH_JOBS:-1}
SPX_SHARED=${SPX_SHARED:-}
limits=(--mean 0.01 --sd 0.01 --corr 0.02)
failed=0
rm -f ./*.txt ./*.png

wanted() { [[ $cases == *" $1 "* ]]; }

# row NAME SPECPIPE PROTOTYPE DESISPEC: a line of a table
row() { printf '   %-48s %-36s %-27s %s\n' "$@"; }

# attribute FILE OBJECT/NAME FORMAT: a number
attribute() { h5dump -m "$3" -a "$2" "$1" | awk '/[(]0[)]/ { print $2 }'; }

# bad CONDITION: of awk, that must not hold for figures of the row before
bad() {
    if awk "BEGIN { exit !($1) }"; then
        echo "   TOO LARGE: $1"
        failed=1
    fi
}

# shellcheck source=tests/science/common.bash
. "$here/science/common.bash"
for part in extract sky shift flat coadd; do
    # shellcheck source=/dev/null
    . "$here/truth/$part.bash"
done

night_case() {
    printf '\n== night: images to velocities, one effect at a time (science/night.sh %s)\n' "$seeds"
    "$here/science/night.sh" "$seeds" plain moved shifted hits scatter moffat disc tails between fringes fringes-10 stars || failed=1
}

grid_case() {
    extract_case grid "spectra that consist of the bins of the extraction" "--arm r --fibers 50 --step 0.8" "" "${limits[@]}"
}

arm_case() { extract_case "$1" "stars and sky lines on a 0.1 Angstrom grid" "--arm $1 --fibers 50" "" "${limits[@]}"; }
b_case() { arm_case b; }
r_case() { arm_case r; }
z_case() { arm_case z; }

artefacts_case() {
    extract_case artefacts "an amplifier gap, bad columns, saturated blocks and many cosmic rays" \
        "--arm z --fibers 50 --cosmics 300 --bad-columns 20 --saturated 5 --nans 50 --gap 1500:1510" "" "${limits[@]}"
}

real_case() {
    local psf=$SPX_SHARED/data/extract/psf-r0-00067784.fits
    [ ! -e "$psf" ] ||
        extract_case real "the same through the PSF of a real camera" "--psf $psf --fibers 0:50" "--spectra 0:50" "${limits[@]}"
}

# start CASE: its report and pictures in a folder of its name.
start() {
    rm -rf "$1"
    mkdir "$1"
    (
        cd "$1"
        "${1//-/_}_case"
        rm -f ./*.h5
        exit "$failed"
    ) >"$1/report.txt" 2>&1 &
}

run=()
for name in "${all[@]}"; do ! wanted "$name" || run+=("$name"); done
declare -A case_of status
begun=0 told=0 running=0
while [ $told -lt ${#run[@]} ]; do
    while [ $running -lt "$together" ] && [ $begun -lt ${#run[@]} ]; do
        start "${run[begun]}"
        case_of[$!]=${run[begun]}
        begun=$((begun + 1)) running=$((running + 1))
    done
    code=0
    wait -n -p pid || code=$?
    status[${case_of[$pid]}]=$code
    running=$((running - 1))
    # in the order of the cases
    while [ $told -lt ${#run[@]} ] && [ -n "${status[${run[told]}]:-}" ]; do
        cat "${run[told]}/report.txt"
        if [ "${status[${run[told]}]}" != 0 ]; then
            [ "${status[${run[told]}]}" = 1 ] || echo "   DID NOT END: status ${status[${run[told]}]}"
            failed=1
        fi
        told=$((told + 1))
    done
done > >(tee report.txt)
for name in "${run[@]}"; do
    for picture in "$name"/*.png; do [ ! -e "$picture" ] || mv "$picture" .; done
done
exit "$failed"
