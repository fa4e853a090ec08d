# share/reduce.mk: a simulated night with failures and restarts (reduce.bats: its rules, without computing).

load common

# The night of `make simulate-night`, with a dark camera b0 in exposure 3, a broken file of camera r0 in exposure 4 and no
# PSF of camera z0; and its reduction, which says so. In plain/, all programs but gnuplot.
setup_file() {
    PATH=$SPX_BUILD/bin:$PATH
    cd "$BATS_FILE_TMPDIR" || return
    mkdir plain || return
    local folders d
    IFS=: read -ra folders <<<"$PATH"
    for d in "${folders[@]}"; do ln -s "$d"/* plain 2>/dev/null || true; done # the first of a name stays
    rm -f plain/gnuplot
    FIBRES=25 "$SPX_ROOT/share/night/simulate.sh" night || return
    cd night || return
    local status=0
    reduce -j2 >first.log 2>&1 || status=$?
    echo $status >first.status
}

# reduce [ARGUMENT...]: make of the night that setup_file simulates, without gnuplot: a page without pictures takes no time
reduce() { "${reduce[@]}" "$@"; }
reduce=(env PATH="$BATS_FILE_TMPDIR/plain" make -f "$SPX_ROOT/share/reduce.mk" NIGHT=20201214)

# night: a copy of the night, with its reduction, in the current folder
night() {
    cp -a "$BATS_FILE_TMPDIR/night/." .
}

failures() {
    (cd "$1" && ls ./*.failed) | sed 's|^\./||; s|\.failed$||'
}

@test "a night with failures: each costs its own products, and is listed with the command that repeats it" {
    night
    [ "$(cat first.status)" -eq 2 ]
    diff - <(failures redux/20201214) <<END
cframe-b0-00000003.h5
cframe-r0-00000004.h5
cframe-z0-00000003.h5
cframe-z0-00000004.h5
cframe-z0-00000005.h5
flat-z0.h5
frame-r0-00000004.h5
frame-z0-00000002.h5
frame-z0-00000003.h5
frame-z0-00000004.h5
frame-z0-00000005.h5
psf-r0-00000004.h5
psf-z0-00000003.h5
psf-z0-00000004.h5
psf-z0-00000005.h5
psf-z0.h5
sframe-r0-00000004.h5
sframe-z0-00000003.h5
sframe-z0-00000004.h5
sframe-z0-00000005.h5
END
    # three of these are causes
    [ "$(grep -cx 'because: ' redux/20201214/*.failed | grep -c ':1$')" -eq 3 ]
    grep -qx 'message:' redux/20201214/psf-z0.h5.failed
    reduce status >status
    grep -qx 'cframe  *4  *0  *5' status
    grep -q 'psf-z0.fits: cannot open' status
    # the page has the same: numbers of failures, reason and command of a cause; without gnuplot it is made, too
    grep -qx 'night.html  *1  *0  *0' status
    [ ! -e redux/20201214/night.html.failed ]
    grep -q 'without pictures: gnuplot is not installed' redux/20201214/night.html
    grep -q '<b>3</b> exposures<.*<b>20</b> products failed' redux/20201214/night.html
    sed -n '/<summary>psf-z0.h5</,/<.details>/p' redux/20201214/night.html >cause
    grep -q 'psf-z0.fits: cannot open' cause
    grep -q '^<p>Again:.*cd .*/night$' cause
    grep -q '^fits2h5 .*psf-z0.fits | specx-shift' cause
    [ "$(grep -c '<summary>.*h5<' redux/20201214/night.html)" -eq 3 ]
    # the command that repeats a failure
    sed -n '/psf-r0-00000004.h5 failed/,/^$/p' status | sed '1,/again:/d' >again
    run bash -o pipefail again
    [ "$status" -eq 3 ]
    [[ $output == *"preproc-r0-00000004.fits"*truncated* ]]
    # what is built from the rest says what it lacks
    h5dump -a /spectra/missing_inputs redux/20201214/spectra-0-00000003.h5 | grep -q 'cframe-b0-00000003.h5 .*cframe-z0-00000003.h5'
    h5check redux/20201214/*.h5
    # nothing is left to be done, and the status stays
    run reduce -j2
    [ "$status" -eq 2 ]
    run ! grep -q 'specx-\|h5merge' <(reduce -n | grep -v status.sh)
}

# pulls RV TRUTH: number of stars, mean and rms of (v - truth) / error
pulls() {
    join -t, <(h5table --csv -c TARGETID,VRAD "$2" | sort) <(h5table --csv -c TARGETID,VRAD,VRAD_ERR "$1" | sort) |
        awk -F, '$1 != "TARGETID" { z = ($3 - $2) / $4; n++; s += z; q += z * z } END { print n, s / n, sqrt(q / n) }'
}

@test "files that arrive late: what depends on them is made, and nothing else" {
    night
    # older than everything
    mv psf/20201214/lost-z0.fits psf/20201214/psf-z0.fits
    mv whole-r0-00000004.fits preproc/20201214/00000004/preproc-r0-00000004.fits
    touch -d 2020-12-15 psf/20201214/psf-z0.fits preproc/20201214/00000004/preproc-r0-00000004.fits
    find redux -name '*.h5' -printf '%T@ %p\n' | sort >before
    run "${reduce[@]:2}" -j2 # with gnuplot, if it is installed
    [ "$status" -eq 2 ]
    [ "$(failures redux/20201214)" = cframe-b0-00000003.h5 ]
    grep -q '<b>1</b> products failed' redux/20201214/night.html
    ! command -v gnuplot || [ "$(grep -c '<figure>.*base64' redux/20201214/night.html)" -ge 12 ]
    find redux -name '*.h5' -printf '%T@ %p\n' | sort >after
    comm -12 before after | sed 's|.*/||; s|\.h5$||' | sort >kept
    diff - kept <<END
flat-b0
flat-r0
frame-b0-00000002
frame-b0-00000003
frame-b0-00000004
frame-b0-00000005
frame-r0-00000002
frame-r0-00000003
frame-r0-00000005
psf-b0
psf-b0-00000003
psf-b0-00000004
psf-b0-00000005
psf-r0
psf-r0-00000003
psf-r0-00000005
sframe-b0-00000003
sframe-b0-00000004
sframe-b0-00000005
sframe-r0-00000003
sframe-r0-00000005
END
    local tile z
    for tile in 100 101; do
        z=$(pulls redux/20201214/rv-$tile.h5 truth/r0-$tile.h5)
        echo "tile $tile: stars, mean and rms of pulls: $z"
        awk '{ exit !($1 == 20 && $2 > -0.8 && $2 < 0.8 && $3 > 0.6 && $3 < 1.5) }' <<<"$z"
    done
    h5check redux/20201214/*.h5
}

@test "kill -9 at any time, and make again, with batches of any size: the same bytes" {
    night
    rm -r redux preproc/20201214/00000003
    mkdir redux
    local n pid f
    for n in 1 5 11 16; do
        setsid "${reduce[@]}" -j2 BATCH=$((n % 4 + 1)) >log 2>&1 &
        pid=$!
        wait_for $pid eval '[ $(find redux -name "*.h5" | wc -l) -ge $n ]'
        kill -9 -- -$pid
        wait $pid || true
    done
    run reduce -j2 BATCH=3
    [ "$status" -eq 2 ]
    specpipe-info --clean redux/20201214
    [ -z "$(find redux -name '.*specpipe*' -o -name '.night.html*')" ]
    grep -q '<b>2</b> exposures<.*<b>15</b> products failed' redux/20201214/night.html
    # tile 100 has an exposure less
    rm redux/20201214/*-100.*
    n=0
    for f in redux/20201214/*.h5 redux/20201214/*.fits; do
        cmp "$f" "$BATS_FILE_TMPDIR/night/$f"
        n=$((n + 1))
    done
    for f in redux/20201214/*.failed; do
        diff <(grep -v ^folder: "$f" | sort) <(grep -v ^folder: "$BATS_FILE_TMPDIR/night/$f" | sort) # programs of a pipe speak in any order
    done
    [ $n -ge 20 ]
}

@test "bytes do not depend on the device, the jobs, the threads or the folder of temporary files" {
    night
    rm -r preproc/20201214/0000000[34]
    local devices=("LD_LIBRARY_PATH=$SPX_BUILD/tests/standin" "SPX_BACKENDS=$SPX_BUILD/tests/standin")
    # one device, batch and job after another; and eight of them for some at a time
    rm -r redux
    run -2 env "${devices[@]}" OMP_NUM_THREADS=1 "${reduce[@]}" PAGE= DEVICES=cuda:0 BATCH=1
    mv redux one
    mkdir tmp
    run -2 env "${devices[@]}" TMPDIR="$PWD/tmp" "${reduce[@]}" PAGE= -j4 BATCH=4 DEVICES='cuda:7 cuda:3 cuda:2 cuda:1 cuda:4 cuda:5 cuda:6'
    h5table --provenance redux/20201214/rv-101.h5 | grep 'device   cuda (stand-in)$'
    local f n=0
    for f in redux/20201214/*.h5 redux/20201214/*.fits redux/20201214/*.failed; do
        [ -e "one/${f#redux/}" ]
        case $f in
        *.failed) diff <(sort "$f") <(sort "one/${f#redux/}") ;; # programs of a pipe speak in any order
        *) cmp "$f" "one/${f#redux/}" ;;
        esac
        n=$((n + 1))
    done
    [ $n -ge 15 ]
    [ "$(find redux -name '*.h5' -o -name '*.failed' | wc -l)" -eq "$(find one -name '*.h5' -o -name '*.failed' | wc -l)" ]
}
