#!/usr/bin/env bash
# Truth test: simulated exposures, reduced and compared with what was put in, beside the figures of the prototype of these
# methods (plain NumPy) and of desispec, which were measured on exposures of the same kind, not on the same ones.
# Usage: truth.sh FOLDER [CASE...]: report.txt and, with gnuplot, pictures. Cases, in the order of the report:
#     grid b r z artefacts real    extraction (`real` needs SPX_SHARED); faint: variance; reject: cosmic rays
#     model-z model-r sky spoilt   sky, and how far traces have moved; barycentric: grids; velocities
#     shift flat flux coadd        others of these programs
#     night                        all of them together, one effect at a time
# TRUTH_SEEDS=FIRST:LAST: exposures of sky, velocities, coadd and night; 1:2 without it.
# The programs and helpers are found on the PATH. `make truth` runs all in BUILD/truth: 14 minutes of processor time. Exit
# status 1: a case is beyond its limits.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
shift
all=(grid b r z artefacts real faint reject model-z model-r sky spoilt barycentric velocities shift flat flux coadd night)
cases=" ${*:-${all[*]}} "
seeds=${TRUTH_SEEDS:-1:2}
SPX_SHARED=${SPX_SHARED:-}
limits=(--mean 0.01 --sd 0.01 --corr 0.02)
failed=0
rm -f ./*.h5 ./*.txt ./*.png

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

{
    extract_case grid "spectra that consist of the bins of the extraction" "--arm r --fibers 50 --step 0.8" "" "${limits[@]}"
    for arm in b r z; do
        extract_case "$arm" "stars and sky lines on a 0.1 Angstrom grid" "--arm $arm --fibers 50" "" "${limits[@]}"
    done
    extract_case artefacts "an amplifier gap, bad columns, saturated blocks and many cosmic rays" \
        "--arm z --fibers 50 --cosmics 300 --bad-columns 20 --saturated 5 --nans 50 --gap 1500:1510" "" "${limits[@]}"
    psf=$SPX_SHARED/data/extract/psf-r0-00067784.fits
    if [ -e "$psf" ]; then
        extract_case real "the same through the PSF of a real camera" "--psf $psf --fibers 0:50" "--spectra 0:50" "${limits[@]}"
    fi
    for name in faint reject model-z model-r sky spoilt barycentric velocities shift flat flux coadd night; do
        ! wanted $name || "${name//-/_}_case"
    done
    rm -f ./*.h5
    exit "$failed"
} 2>&1 | tee report.txt
