# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# Provides the cases of the extraction: pulls against what was put in, variance, cosmic rays. truth.sh sources this file.

# extract_case NAME TEXT "OPTIONS OF specx-sim" "OPTIONS OF specx-extract" [LIMITS...]
extract_case() {
    local name=$1 text=$2 sim=$3 extract=$4
    shift 4
    wanted "$name" || return 0
    printf '\n== %s: %s\n   specx-sim %s\n' "$name" "$text" "${sim//"$SPX_SHARED"/\$SPX_SHARED}"
    # The options are words.
    # shellcheck disable=SC2086
    specx-sim -q -f --seed "$seed" $sim --format hdf5 --truth truth.h5 -o image.h5
    # shellcheck disable=SC2086
    specx-extract -q -f $extract --precision double -o frame.h5 image.h5
    frame_truth "$@" frame.h5 truth.h5 "$name.txt" || failed=1
    if command -v gnuplot >/dev/null; then
        gnuplot -e "table='$name.txt'; name='$name: $text'; out='$name.png'" "$here/truth.gp"
    fi
}

# Bias of faint spectra by the variance of their pixels.
faint_case() {
    local name text extract prototype
    printf '\n== faint: mean pull of faint stars without sky, arm r, 50 fibres of magnitude 21 to 25\n'
    row '' specpipe 'prototype (S/N 0.85)' ''
    while IFS='|' read -r name text sim extract prototype limits; do
        # The options are words.
        # shellcheck disable=SC2086
        specx-sim -q -f --arm r --seed "$seed" --fibers 50 --no-sky --mag 21:25 $sim --truth truth.h5 -o image.h5
        # shellcheck disable=SC2086
        specx-extract -q -f $extract --precision double -o frame.h5 image.h5
        # shellcheck disable=SC2086
        frame_truth $limits frame.h5 truth.h5 "$name.txt" >pulls.txt || bad 1
        row "$text" "$(awk '$1 == "clean" { print $5, $6, $7 }' pulls.txt)" "$prototype" ''
    done <<'END'
faint|variance from the true model|||-0.007|--mean 0.01 --sd 0.01 --corr 0.02
faint-data|from the noisy pixels|--ivar data||-0.364|
faint-model|the same, --variance model|--ivar data|--variance model|-0.010|--mean 0.02 --sd 0.02 --corr 0.02
END
}

# Cosmic rays that nobody has flagged: found, false, and what they leave of the spectra.
reject_case() {
    local camera=(-q -f --arm r --seed "$seed" --fibers 50 --wavelength 6300,6800 --bad-columns 0) f motion
    local extract=(-q -f -w 6310,6790,0.8 --precision double)
    printf '\n== reject: cosmic rays, 150 a million pixels: arm r, 50 fibres, 500 Angstrom\n'
    specx-sim "${camera[@]}" --cosmics 150 --no-flag-cosmics --truth truth.h5 -o hit.h5
    specx-sim "${camera[@]}" --cosmics 150 -o flagged.h5
    specx-sim "${camera[@]}" --cosmics 0 -o clean.h5
    for f in hit flagged; do specx-extract "${extract[@]}" "$f.h5" -o "frame-$f.h5"; done
    for f in hit clean; do specx-extract "${extract[@]}" --reject 5 "$f.h5" -o "frame-reject-$f.h5"; done
    hits_truth hit.h5 clean.h5 truth.h5 frame-flagged.h5 frame-hit.h5 frame-reject-hit.h5 >hits.txt
    hits_truth clean.h5 clean.h5 truth.h5 frame-flagged.h5 frame-hit.h5 frame-reject-clean.h5 >none.txt
    row '' specpipe prototype ''
    awk '$1 == "found" { print $2, $3, $4, $5 }' hits.txt | while read -r low high n part; do
        row "pixels of $low to ${high/1e+09/more} errors found" "$part % of $n" '100 % of all' ''
    done
    row 'pixels masked without a hit' "$(awk '$1 == "false" { print $2, "of", $3 "; far from hits", $4 }' hits.txt)" \
        '620 of 217000; 116' ''
    row 'the same of an image without hits' "$(awk '$1 == "false" { print $2, "of", $3 }' none.txt)" '0 of 119000' ''
    row 'bins hit that are off by > 5 errors, of' "$(awk '$1 == "bins" { print $2 }' hits.txt)" 467 ''
    row '  without rejection' "$(awk '$1 == "bins" { print $3 }' hits.txt)" 349 ''
    row '  with' "$(awk '$1 == "bins" { print $4 }' hits.txt)" 21 ''
    row '  with the true mask' "$(awk '$1 == "bins" { print $5 }' hits.txt)" 9 ''
    row 'median pull of bins hit: without, with, true' "$(awk '$1 == "pulls" { print $2, $3, $4 }' hits.txt)" '20.8, 0.03, 0.01' ''
    bad "$(awk '$1 == "found" && $4 > 50 && $5 < 95 { b = 1 } $1 == "false" && $4 > 0.0001 * $3 { b = 1 }
        $1 == "bins" && $4 > $5 + 0.03 * $2 { b = 1 } END { print b + 0 }' hits.txt)"
    bad "$(awk '$1 == "false" { print $2 }' none.txt) > 2"
    for motion in '' '--shift wave'; do
        # The options are words.
        # shellcheck disable=SC2086
        specx-sim -q -f --arm z --seed "$seed" --fibers 50 --wavelength 8750,9050 --bad-columns 0 --cosmics 0 $motion --truth truth.h5 -o clean.h5
        specx-extract -q -f -w 8760,9040,0.8 --precision double clean.h5 -o frame-clean.h5
        specx-extract -q -f -w 8760,9040,0.8 --precision double --reject 5 clean.h5 -o frame-reject-clean.h5
        hits_truth clean.h5 clean.h5 truth.h5 frame-clean.h5 frame-clean.h5 frame-reject-clean.h5 >none.txt
        row "arm z without hits, $([ -n "$motion" ] && echo wrong || echo right) PSF" "$(awk '$1 == "false" { print $2, "of", $3 }' none.txt)" '0 of 119000' ''
        bad "$(awk '$1 == "false" { print $2 }' none.txt) > 2"
    done
}
