# shellcheck shell=bash
# Provides what the classes of attacks use (tests/trust/run.sh): tries and their results, the programs that are attacked,
# and the judgement of a run whose machine fails.
#
# $d is the data folder (tests/examples.sh), the current folder is the class's own, $TMPDIR is in it. run.sh sets trust_*.
# shellcheck disable=SC2154,SC2034,SC2317

# turn: counts a try; true when it is this process's to make.
turn() {
    local n=$trust_n
    trust_n=$((n + 1))
    [ $((n % trust_stride)) -eq 0 ] && [ $((n / trust_stride % jobs)) -eq "$trust_part" ]
}

# turns COUNT: counts so many tries; `first` is the number, from 1, of the first that is this process's to make, and
# `step` the distance to its next. False when it has none of them.
turns() {
    local n=$trust_n mine=$((trust_stride * trust_part))
    trust_n=$((n + $1))
    step=$((trust_stride * jobs))
    first=$(((mine - n) % step))
    first=$(((first + step) % step + 1))
    [ "$first" -le "$1" ]
}

# One of these for each try that is made. TEXT: the command that repeats it, and its end; soft: a right end, but not the
# best one.
ok() { echo ok >>"$trust_results"; }
soft() { printf 'soft\t%s\n' "$*" | tr '\n' ' ' | sed 's/ $/\n/' >>"$trust_results"; }
wrong() { printf 'wrong\t%s\n' "$*" | tr '\n' ' ' | sed 's/ $/\n/' >>"$trust_results"; }

# without_inventory FILE...: cuts the inventory off, so that programs read damaged HDF5 as that of other programs.
without_inventory() {
    local f
    for f; do
        truncate -s -"$(tail -c 16 "$f" | od -An -tu8 -N8 | tr -d ' ')" "$f"
    done
}

# ---- programs ----

# shellcheck source=tests/programs.sh
. "$SPX_ROOT/tests/programs.sh"

# Datasets that programs write on demand only: coadds, velocities of exposures and second stars, templates, the sky's gradient
# and amplifiers, models and background of images, one lamp, masters.
# shellcheck disable=SC2016
on_demand=(
    'h5merge -q -j 1 --coadd optimal --allow-topocentric $d/frame-r0.h5'
    'rvs-fit -q -j 1 -t $d/templates.h5 --joint target --epochs --rows 0:2 $d/spectra.h5'
    'rvs-fit -q -j 1 -t $d/templates.h5 --components 2 --rows 0:1 $d/spectra.h5'
    'specx-sky -q -j 1 --gradient x --sectors $d/frame-r0.h5'
    'specx-extract -q -j 1 $d/image-r0.h5 --wavelength 6400,6420,0.8 --spectra 0:2 --model --background 64 --reject 5'
    'specx-flat -q -j 1 --lamps one --native $d/lamp-r0-1.h5 $d/lamp-r0-2.h5'
    'specx-psf -q -j 1 --start $d/arc-r0.h5 --trace-degree 2 --hermite-degree 2 --shape-degree 0,0 --model out/model.h5 $d/arc-r0.h5'
    'specx-preproc -q -j 1 --combine bias $d/raw-r0.h5 $d/raw-r0.h5'
    'specx-shift -q -j 1 --lamp $d/arc-r0.h5'
)

# Commands that are attacked: all programs, pipes, a queue and side files. Evaluated in the class's folder; products go into
# out/ or to standard output.
cases=()
for w in "${writers[@]}" "${on_demand[@]}"; do
    cases+=("$w --reproducible -f -o out/product")
done
cases+=("${readers[@]}")
# shellcheck disable=SC2016
cases+=(
    'fits2h5 -q --reproducible - <$d/preproc-r0.fits'
    'h5merge -q --reproducible - <$d/frame-r0.h5'
    'h52fits -q - <$d/frame-r0.h5'
    'specx-extract -q -j 1 --wavelength 6400,6410,0.8 --spectra 0:2 --reproducible -f $d/image-r0.h5 -o out/'
    'specx-sim -q -j 1 --wavelength 6400,6410 --fibers 2 --truth out/truth.h5 --psf-output out/psf.fits --reproducible -f -o out/image.fits'
)

# right_run CASE: a run that nothing disturbs, whose products are kept to compare with. Its status is nonzero, and a wrong
# result is noted, when the command fails by itself. The array `with` holds assignments for the environment.
with=()
right_run() {
    kept_run "$1"
    if [ "$right_status" -ne 0 ] || [ -s stderr ]; then
        wrong "fails by itself with status $right_status: $1: $(<stderr)"
        return 1
    fi
}

# kept_run CASE: the same, whatever its status, right_status.
kept_run() {
    rm -rf out old right tmp
    mkdir out old right tmp
    right_status=0
    (eval "exec env ${with[*]} $1") >right.stdout 2>stderr || right_status=$?
    local f
    [ "$right_status" -eq 0 ] || : >out/product # an old output that has to stay
    for f in out/*; do
        cp "$f" right/
        echo "precious old content of $f" >"old/${f#out/}"
    done
}

# disturbed CASE [PREFIX...]: the same command over an old output, with PREFIX before it. Sets `status`; 124: it did not
# end within a minute. Messages go through a pipe: limits on files are not theirs.
disturbed() {
    rm -rf out
    cp -r old out
    (eval "exec timeout -k 5 60 env ${with[*]} ${*:2} $1") 2>&1 >stdout | cat >stderr
    status=${PIPESTATUS[0]}
}

# judge CASE HOW: the run that has ended had the machine fail. Right: the status of the right run and the same products; or
# a status of `failing`, a message of one line beside those of the frames of a queue, and each output is the old one.
# Nothing else is left in the folders.
failing=4
judge() {
    local f state='' new=0 all=0 program=${1%% *} left failed=0
    [[ " $failing " != *" $status "* ]] || failed=1
    for f in right/*; do
        f=${f#right/}
        all=$((all + 1))
        if cmp -s "out/$f" "right/$f"; then
            new=$((new + 1))
        elif ! cmp -s "out/$f" "old/$f"; then
            state+=" $f is neither old nor new;"
        fi
    done
    left=$(find tmp out -mindepth 1 -printf '%P\n' | while read -r f; do [ -e "right/$f" ] || echo "$f"; done)
    [ -z "$left" ] || state+=" left behind: $left;"
    [ "$status" -ne 0 ] || [ $new -eq $all ] || state+=" no product;"
    [ "$status" -ne 0 ] || cmp -s stdout right.stdout || state+=" another standard output;"
    [ $failed = 0 ] || grep -q "^$program: " stderr || state+=" no message;"
    case $status in
    "$right_status") ;;
    124 | 137) state+=" no end;" ;;
    *) [ $failed = 1 ] || state+=" status $status;" ;;
    esac
    if [ -n "$state" ]; then
        wrong "$2: $1: status $status;$state $(head -c 200 stderr)"
        rm -rf tmp/* tmp/.[!.]*
    elif [ $failed = 1 ] && [ "$(grep -vc "^$program: frames/" stderr)" -ne 1 ]; then
        soft "$2: $1: a message of $(wc -l <stderr) lines: $(head -c 300 stderr)"
    elif [ $failed = 1 ] && [ $all -gt 0 ] && [ $new -eq $all ]; then
        soft "$2: $1: status $status after the whole product: $(head -c 200 stderr)"
    else
        ok
    fi
}
