# specx-psf: traces and PSF of simulated arcs against the shift that was put in, lists of lines, what a camera may lack,
# and input that it has to refuse. Accuracy in units of errors: tests/kernels/test_psffit.c.

load common

# arc NAME OPTION...: exposure of lamps, 10 fibres of a part of arm r.
arc() {
    specx-sim -q --arc Ne,Kr --fibers 10 --wavelength 5850,6450 -f -o "$1.h5" "${@:2}"
}

fit=(--trace-degree 4 --bundle-size 10)

setup_file() {
    mkdir "$BATS_FILE_TMPDIR/d" && cd "$BATS_FILE_TMPDIR/d" || return
    arc arc --shift 0.3,-0.2
    specx-psf -q --start arc.h5 "${fit[@]}" -o psf.h5 arc.h5
}

# column FILE TABLE NAME: values of a column
column() {
    h5table -q --csv -c "$3" -t "$2" "$1" | tail -n +2
}

@test "traces are where they were drawn, within errors of thousandths of a pixel" {
    local d=$BATS_FILE_TMPDIR/d
    h5check "$d/psf.h5"
    # the median over lines scatters less than the median error of one
    h5table -q --csv -c XSHIFT,X_ERR,YSHIFT,Y_ERR -t /psffit/fibre "$d/psf.h5" | awk -F, '
        NR > 1 { n++; x = ($1 - 0.3)/$2; y = ($3 + 0.2)/$4; sum += x*x + y*y; if (x*x > 9 || y*y > 9) exit bad = 1 }
        END { exit bad || !(n == 10 && sum < 2 * n * 1.5) }'
    column "$d/psf.h5" /psffit/fibre X_ERR | awk '!($1 > 0.0005 && $1 < 0.02) { exit 1 }'
    column "$d/psf.h5" /psffit/fibre STATUS | awk '$1 != 4 { exit 1 }' # the CCD goes on behind the last line
    column "$d/psf.h5" /psffit/fibre CHI2 | awk '!($1 > 0.8 && $1 < 1.2) { exit 1 }'
}

@test "results do not depend on the number of threads" {
    local d=$BATS_FILE_TMPDIR/d
    for j in 1 2; do
        specx-psf -q --reproducible -j $j --start "$d/arc.h5" --trace-degree 4 --bundle-size 5 -f -o out.h5 "$d/arc.h5"
        cp out.h5 $j.h5
    done
    cmp 1.h5 2.h5
}

@test "a line that is listed wrong is named; lines that are not listed are found" {
    local d=$BATS_FILE_TMPDIR/d
    # Ne 6097.851 listed 0.06 Angstrom too far; 6144.763 and 6268.229 are left out
    printf 'Ne %s\n' 5854.110 5883.525 5946.481 5977.190 6031.667 6076.019 6097.911 6165.299 6219.001 6306.533 6336.179 \
        6384.756 6404.018 >ne.txt
    run -0 specx-psf -v --start "$d/arc.h5" --lines ne.txt "${fit[@]}" -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"line Ne 6097.911: found at -0.0"* ]]
    [[ "$output" != *"line Ne 6076"* && "$output" != *"line Ne 6165"* ]]
    h5check psf.h5
    h5table -q --csv -c WAVELENGTH,ELEMENT,LISTED -t /psffit/line psf.h5 | awk -F, '
        $3 == 0 && $1 > 6144.6 && $1 < 6144.9 && $2 ~ /Ne/ { one = 1 }
        $3 == 0 && $1 > 6268.1 && $1 < 6268.35 && $2 ~ /Ne/ { two = 1 }
        END { exit !(one && two) }'
}

@test "a bundle without light keeps the start, and costs nothing" {
    specx-sim -q --flat --fibers 20 --wavelength 5850,6450 --psf-output all.fits -o flat.h5
    specx-sim -q --arc Ne,Kr --psf all.fits --fibers 0:10 -o half.h5
    run -0 specx-psf --start all.fits --trace-degree 4 --bundle-size 10 -o psf.h5 half.h5
    [[ "$output" == *"10 of 20 fibres are of bundles that were not fitted"* ]]
    [ "$(column psf.h5 /psffit/bundle NITER | tail -n 1)" = 0 ]
    [ "$(column psf.h5 /psffit/fibre STATUS | tail -n 10 | sort -u)" = 64 ]
}

# The lines of these lamps end at 7650 Angstrom, the CCD at 10140. Spots are no Hermite series, and what is left of them would bend
# traces there without end.
@test "no lines on 45 % of the CCD: traces stay apart there" {
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    local psf=$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits
    specx-sim -q --psf "$psf" --arc Ne,Kr,Ar -o arc.h5
    run -0 specx-psf --tail fit --hermite-degree 4 --start "$psf" -o psf.h5 arc.h5
    [[ "$output" == *"25 of 25 fibres fitted"* && "$output" == *"reach beyond their last lines"* ]]
    [[ "$output" == *"25 of 25 fibres are fitted badly"* ]] # centres are off by some 0.04 pixel
    [[ "$output" == *"spots are off the fit by "*" % of their peak: the tail may be wings"* ]] # those of the second core
    h5check psf.h5
    column psf.h5 /psffit/fibre X_ERR | awk '!($1 > 0.008) { exit 1 }' # 0.004 without the fit of spots that are alike
    # the sum of 7 coefficients is x at the last wavelength: 7 pixels from fibre to fibre, 15 where a block ends
    h5dump -y -d /psf/xtrace psf.h5 | grep '^ *[0-9-]' | tr -d ' \n' | tr ',' '\n' | awk '
        { x += $1 }
        NR % 7 == 0 { if (NR > 7 && !(x - last > 3 && x - last < 20)) { print NR, x - last; bad = 1 }; last = x; x = 0 }
        END { exit bad || NR != 175 }'
}

@test "lines that traces cannot follow: errors say by how much, and fibres are flagged" {
    local d=$BATS_FILE_TMPDIR/d
    # 0.09 pixel rms along the rows with traces of one term too few; errors of noise alone would be 0.005
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 3 --bundle-size 10 -o low.h5 "$d/arc.h5"
    [[ "$output" == *"10 of 10 fibres are fitted badly"* ]]
    h5table -q --csv -c X_ERR,Y_ERR,STATUS -t /psffit/fibre low.h5 | awk -F, '
        NR > 1 && !($1 < 0.02 && $2 > 0.04 && $2 < 0.2 && int($3 / 8) % 2 == 1) { print; bad = 1 } END { exit bad }'
    # which is not taken for spots of another shape: no other degrees, and weights of the photons where these are given
    [[ "$output" != *"off the fit"* ]]
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 3 --hermite-degree 8 --hermite-width 0.75 --bundle-size 10 -o narrow.h5 "$d/arc.h5"
    [[ "$output" == *"10 of 10 fibres are fitted badly"* ]]
}

@test "wings under the next fibre, and a fibre through a bad column: errors know that places may be elsewhere" {
    local d=$BATS_FILE_TMPDIR/d
    # spots of another kind: fibre 0 lies 0.023 pixel off in x, the errors of noise are 0.003
    arc moffat --spots moffat --lamp-level 3e5
    run -0 specx-psf --start "$d/arc.h5" "${fit[@]}" --hermite-degree 6 --shape-degree 2,3 -o psf.h5 moffat.h5
    [[ "$output" == *"(--shape-degree 0,"*"put those of fibre 0 up to 0.0"* ]]
    h5check psf.h5
    h5table -q --csv -c XSHIFT,X_ERR -t /psffit/fibre psf.h5 | awk -F, '
        NR > 1 && !($1 ^ 2 < (4 * $2) ^ 2 && (NR == 2 ? $1 < -0.015 && $2 > 0.01 : $2 < 0.008)) { print; bad = 1 } END { exit bad }'
    # narrow functions, which are taken by default, put it where it is
    specx-psf -q --start "$d/arc.h5" "${fit[@]}" -f -o psf.h5 moffat.h5
    h5table -q --csv -c XSHIFT -t /psffit/fibre psf.h5 | awk 'NR == 2 && $1 ^ 2 > 0.008 ^ 2 { exit 1 }'
    # two cores, the second of which has 6 % of the peak 4 pixels left of it, 3 from the next fibre: off by 0.04 pixel in x
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    fits2h5 -q "$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits" -o boss.h5
    h5edit boss.h5 range /psf/coeff 14000 14200 0 # TAILAMP
    specx-sim -q --psf boss.h5 --arc Ne,Kr,Ar --fibers 20:25 -o wings.h5
    specx-psf -q --start boss.h5 --bundle-size 20 --bundle-range 1:2 --hermite-degree 6 -o boss-psf.h5 wings.h5
    h5table -q --csv -c STATUS,X_ERR -t /psffit/fibre boss-psf.h5 | awk -F, '
        NR > 22 && NR < 26 { n++; if (!($2 > 0.03 && $2 < 0.08 && int($1 / 8) % 2 == 1)) exit bad = 1 } END { exit bad || n != 3 }'
}

@test "--fix shape measures traces alone" {
    local d=$BATS_FILE_TMPDIR/d
    specx-psf -q --start "$d/psf.h5" --fix shape "${fit[@]}" -o today.h5 "$d/arc.h5"
    h5check today.h5
    h5diff "$d/psf.h5" today.h5 /psf/coeff
    run ! h5diff -q "$d/psf.h5" today.h5 /psf/xtrace
    run ! h5ls today.h5/psffit/cov_shape
    fails_with 2 '*contradict*' specx-psf --start "$d/psf.h5" --fix shape --hermite-degree 4 -o no.h5 "$d/arc.h5"
}

@test "--model writes model and residuals; several arcs have shifts" {
    local d=$BATS_FILE_TMPDIR/d
    arc two --shift 0.5,-0.2 --noise-seed 2
    specx-psf -q --start "$d/arc.h5" "${fit[@]}" --model model.h5 -o psf.h5 "$d/arc.h5" two.h5
    h5check psf.h5 model.h5
    h5dump -d /psffit/shift psf.h5 | grep -q '(1,0): 0\.\(19\|2\)'
    h5ls model.h5/psffit/chi | grep -q '{2, '
}

@test "bundles that are not asked for keep the start" {
    local d=$BATS_FILE_TMPDIR/d
    specx-psf -q --start "$d/arc.h5" --trace-degree 4 --bundle-size 5 --bundle-range 1:2 -o psf.h5 "$d/arc.h5"
    h5check psf.h5
    column psf.h5 /psffit/fibre STATUS | awk 'NR <= 5 { if ($1 != 64) exit 1 } NR > 5 { if ($1 != 4) exit 1 }'
    fails_with 2 '*--bundle-range*' specx-psf --start "$d/arc.h5" --bundle-range 7:9 -o no.h5 "$d/arc.h5"
}

@test "the result is written as a DESI file, and read again" {
    local d=$BATS_FILE_TMPDIR/d
    h52fits -q -o psf.fits "$d/psf.h5"
    specx-psf -q --start psf.fits "${fit[@]}" -o again.h5 "$d/arc.h5"
    h5check again.h5
    column again.h5 /psffit/fibre XSHIFT | awk '!($1 ^ 2 < 0.005 ^ 2) { exit 1 }'
}

@test "exposures without lamp lines are refused; weak arcs and continuum are not" {
    local d=$BATS_FILE_TMPDIR/d kind sun=(--teff 5770 --logg 4.4 --feh 0 --velocity 0 --vsini 2)
    local at=(--fibers 10 --wavelength "5850,6450")
    specx-sim -q "${at[@]}" --flat -o flat.h5
    specx-sim -q "${at[@]}" --sky-fibers 10 --exptime 3600 -o sky.h5
    specx-sim -q "${at[@]}" --sky-fibers 0 --no-sky "${sun[@]}" --snr 100 -o twilight.h5
    for kind in flat sky twilight; do
        fails_with 3 "*$kind.h5:/image/data: shows no lamp lines: of * are where lines should be: give exposures of arc lamps*--lamps*" \
            specx-psf --start "$d/arc.h5" "${fit[@]}" -o no.h5 $kind.h5
        # nor among right ones, whichever comes first
        fails_with 3 "*: $kind.h5:/image/data: shows no lamp lines: *" \
            specx-psf --start "$d/arc.h5" "${fit[@]}" -o no.h5 "$d/arc.h5" $kind.h5
        fails_with 3 "*: $kind.h5:/image/data: shows no lamp lines: *" \
            specx-psf --start "$d/arc.h5" "${fit[@]}" -o no.h5 $kind.h5 "$d/arc.h5"
    done
    # one that is too faint to show peaks
    specx-sim -q "${at[@]}" --flat --lamp-level 20 -o faint.h5
    fails_with 3 "*: faint.h5:/image/data: shows no lamp lines: *" \
        specx-psf --start "$d/arc.h5" "${fit[@]}" -o no.h5 "$d/arc.h5" faint.h5
    # lines are few and faint
    arc weak --lamp-level 300
    specx-psf -q --start "$d/arc.h5" "${fit[@]}" -o weak-psf.h5 weak.h5
    # 200 electrons per Angstrom beside lines of 1500 to 40 000
    printf '%s\n' 5854.11 5883.53 5946.48 5977.19 6031.67 6076.02 6097.85 6144.76 6165.30 6219.00 6268.23 6306.53 6336.18 \
        6384.76 6404.02 | awk '{ lines[NR] = $1 }
        END {
            for (l = n = 1; l < 6510; l = w) {
                w = l == 1 ? 5790 : l + 0.5
                while (lines[n] > 0 && lines[n] < w + 0.1) {
                    f = 1500 * exp(n % 5 * 0.8) / 0.01
                    printf "%.3f 200\n%.3f %.0f\n%.3f 200\n", lines[n] - 0.01, lines[n], f, lines[n] + 0.01
                    w = lines[n++] + 0.4
                }
                printf "%.3f 200\n", w
            }
        }' >lamp.txt
    seq 10 | sed 's/.*/lamp.txt/' >lamps
    specx-sim -q --arm r --wavelength 5850,6450 --no-sky --shift 0.3,-0.2 -o glow.h5 lamps
    specx-psf -q --start "$d/arc.h5" "${fit[@]}" -o glow-psf.h5 glow.h5
    h5table -q --csv -c XSHIFT,YSHIFT,STATUS -t /psffit/fibre glow-psf.h5 | awk -F, '
        NR > 1 && !(($1 - 0.3) ^ 2 < 0.03 ^ 2 && ($2 + 0.2) ^ 2 < 0.03 ^ 2 && $3 < 8) { exit 1 }'
}

@test "input that cannot be fitted" {
    local d=$BATS_FILE_TMPDIR/d
    fails_with 2 '*--start*' specx-psf -o no.h5 "$d/arc.h5"
    fails_with 3 '*arc.h5: is an input twice: *' specx-psf --start "$d/arc.h5" -o no.h5 "$d/arc.h5" "$d/arc.h5"
    # what is no PSF
    h5copy -i "$d/arc.h5" -o image.h5 -s /image -d /image
    fails_with 3 '*image.h5:/psf: is missing: give traces and PSF: *specx-psf makes*' \
        specx-psf --start image.h5 -o no.h5 "$d/arc.h5"
    echo text >text
    fails_with 3 '*text: is no FITS file*: give traces and PSF: *specx-psf makes*' \
        specx-psf --start text -o no.h5 "$d/arc.h5"
    echo 'Ne 9000.1' >far.txt
    fails_with 3 '*none of 1 lines*on the CCD*' specx-psf --start "$d/arc.h5" --lines far.txt -o no.h5 "$d/arc.h5"
    # traces that cannot follow are no reason to distrust all lines, but traces that cannot at all are
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 3 --bundle-size 10 -o low.h5 "$d/arc.h5"
    [[ "$output" == *"too many to be listed wrong"*"--trace-degree"* ]]
    for seed in 1 2 3 4; do
        arc other --shift 0.3,-0.2 --noise-seed $seed
        fails_with 3 '*where lines should be*raise --trace-degree*' \
            specx-psf --start other.h5 --trace-degree 2 --bundle-size 10 -o no.h5 other.h5
    done
    fails_with 2 '*out of range*' specx-psf --start "$d/arc.h5" --shape-degree 9,9 -o no.h5 "$d/arc.h5"
    fails_with 2 '*X,Y*' specx-psf --start "$d/arc.h5" --hsize 5 -o no.h5 "$d/arc.h5"
    # no light, all pixels masked
    specx-sim -q --flat --lamp-level 1 --fibers 10 --wavelength 5850,6450 -o dark.h5
    fails_with 1 '*no bundle could be fitted*' specx-psf --start "$d/arc.h5" "${fit[@]}" -o no.h5 dark.h5
    fails_with 1 '*no bundle could be fitted: fibres need four lines*see whether the lamps*are those of the list (--lamps*' \
        specx-psf --start "$d/arc.h5" "${fit[@]}" --lamps Hg,Cd -o no.h5 "$d/arc.h5"
    # a start whose first and last traces are one
    cp "$d/arc.h5" cross.h5
    h5dump -y -d /psf/xtrace "$d/arc.h5" | grep '^ *[0-9-]' | tr -d ' \n' | tr ',' '\n' | head -5 >first
    for k in 0 1 2 3 4; do
        h5edit cross.h5 set /psf/xtrace $((45 + k)) "$(sed -n $((k + 1))p first)"
    done
    fails_with 1 '*no bundle could be fitted: traces of fibres 0 and 9 meet*--start is of this camera*' \
        specx-psf --start cross.h5 "${fit[@]}" -o no.h5 "$d/arc.h5"
    # spots that are a tenth of a pixel wide, of which no equations can be made
    cp "$d/arc.h5" narrow.h5
    for k in 0 1 2 3 4 5 6 7 8 9; do
        h5edit narrow.h5 set /psf/coeff $((3 * k)) 0.1
    done
    fails_with 1 '*no bundle could be fitted: equations of bundle 0 have no solution: see whether --start is of this camera*' \
        specx-psf --start narrow.h5 "${fit[@]}" -o no.h5 "$d/arc.h5"
    specx-sim -q --arc Ne --fibers 10 --wavelength 5850,6000 -o small.h5
    fails_with 3 '*the first one*' specx-psf --start "$d/arc.h5" -o no.h5 "$d/arc.h5" small.h5
    fails_with 3 '*the image has *, the PSF of --start is for *: give a PSF of this camera*' \
        specx-psf --start "$d/arc.h5" -o no.h5 small.h5
    mkdir folder
    fails_with 3 'specx-psf: folder: is a directory: give a file' specx-psf --start "$d/arc.h5" --lines folder -o no.h5 "$d/arc.h5"
}

@test "a list in air of lamps that nobody knows: the move along the rows gives it away" {
    local d=$BATS_FILE_TMPDIR/d
    # Ne and Kr in air, under another name
    printf 'Qq %s\n' 5852.488 5870.916 5881.895 5944.834 5975.534 6029.997 6074.338 6096.163 6143.063 6163.594 6217.281 \
        6266.495 6304.789 6334.428 6382.991 6402.248 >air.txt
    run -0 specx-psf --start "$d/arc.h5" --lines air.txt "${fit[@]}" -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"as wavelengths in air make them"*"--medium air"* ]]
    run -0 specx-psf --start "$d/arc.h5" --lines air.txt --medium air "${fit[@]}" -o right.h5 "$d/arc.h5"
    [[ "$output" != *"in air"* ]]
    # and the reverse
    awk '{ printf "%s %.3f\n", $1, $2 * 1.0002767 }' air.txt >vacuum.txt
    run -0 specx-psf --start "$d/arc.h5" --lines vacuum.txt --medium air "${fit[@]}" -o reverse.h5 "$d/arc.h5"
    [[ "$output" == *"as wavelengths in vacuum, taken for air, make them"*"--medium vacuum"* ]]
}

@test "six lines for traces of seven terms: the highest stay those of the start, and it says so" {
    local d=$BATS_FILE_TMPDIR/d
    printf 'Ne %s\n' 5854.110 5977.190 6031.667 6165.299 6306.533 6404.018 >six.txt
    run -0 specx-psf --start "$d/arc.h5" --lines six.txt --trace-degree 6 --bundle-size 10 -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"10 of 10 fibres have fewer than two lines a term"*"those of the start"* ]]
    h5table -q --csv -c XSHIFT,YSHIFT -t /psffit/fibre psf.h5 | awk -F, '
        NR > 1 { n++; x += ($1 - 0.3) ^ 2; y += ($2 + 0.2) ^ 2 }
        END { print sqrt(x / n), sqrt(y / n); exit !(x < n * 0.004 ^ 2 && y < n * 0.004 ^ 2) }'
}

@test "saturated lines: their pixels are flagged, and traces are right" {
    local d=$BATS_FILE_TMPDIR/d
    # Wings of 3e6 electrons are brighter than the model is good. 31 seeds: rms 0.0014 and 0.0018 pixel, worst 0.0021 and
    # 0.0025; 0.0157 where the hard clip, which does not know that, takes wings of a fibre one after the other.
    for seed in 4 $RANDOM $RANDOM $RANDOM; do
        echo "noise seed $seed"
        arc saturated --shift 0.3,-0.2 --lamp-level 3e6 --fullwell 60000 --noise-seed "$seed"
        specx-psf -q --start "$d/arc.h5" "${fit[@]}" -f -o psf.h5 saturated.h5
        # one in some thirty seeds goes on by 1e-4 of chi squared a step, and says so; its traces are right, too
        h5table -q --csv -c XSHIFT,YSHIFT,STATUS -t /psffit/fibre psf.h5 | awk -F, -v seed="$seed" '
            NR > 1 { n++; x += ($1 - 0.3) ^ 2; y += ($2 + 0.2) ^ 2; late += $3 >= 128 }
            END { print sqrt(x / n), sqrt(y / n); exit !(x < n * 0.004 ^ 2 && y < n * 0.004 ^ 2 && (late == 0 || seed != 4)) }'
    done
}

@test "lines too bright for the degrees that are given: places, and errors that cover them" {
    local d=$BATS_FILE_TMPDIR/d seed
    # Widths of this camera are no straight lines along a bundle: 3 % of the light of a pixel in one fibre, 0.5 % in another. 0.010
    # to 0.016 pixel with a clip of noise alone; with one that allows alike for all fibres 0.0125 in the sixth (the last three).
    for seed in 4 $RANDOM 6440 1082 1120; do
        echo "noise seed $seed"
        arc bright --shift 0.3,-0.2 --lamp-level 3e6 --fullwell 1e9 --noise-seed "$seed"
        specx-psf -q --start "$d/arc.h5" "${fit[@]}" --hermite-degree 6 --shape-degree 1,2 -f -o psf.h5 bright.h5
        h5table -q --csv -c XSHIFT,YSHIFT,X_ERR,Y_ERR -t /psffit/fibre psf.h5 | awk -F, '
            NR > 1 { n++; x += ($1 - 0.3) ^ 2; y += ($2 + 0.2) ^ 2; a += (($1 - 0.3) / $3) ^ 2; b += (($2 + 0.2) / $4) ^ 2
                if (($1 - 0.3) ^ 2 > worst) worst = ($1 - 0.3) ^ 2 }
            END { print sqrt(x / n), sqrt(y / n), sqrt(a / n), sqrt(b / n), sqrt(worst)
                exit !(x < n * 0.003 ^ 2 && y < n * 0.003 ^ 2 && a < n * 2.5 ^ 2 && b < n * 2.5 ^ 2 && worst < 0.008 ^ 2) }'
    done
}

@test "saturated lines without flags: found, left out, and named; bright ones that are not saturated are none" {
    local d=$BATS_FILE_TMPDIR/d
    local seed
    # all flags are taken away: no bad column, which would lose its own, too, and moves spots where lines hide it
    for seed in 1 2 3 4 5; do
        arc right --shift 0.3,-0.2 --lamp-level 1e6 --fullwell 60000 --bad-columns 0 --noise-seed $seed
        cp right.h5 ceiling.h5
        h5edit ceiling.h5 fill /image/mask 0 fill /image/ivar 1e-5
        specx-psf -q --start "$d/arc.h5" "${fit[@]}" -f -o psf-right.h5 right.h5
        specx-psf -q --start "$d/arc.h5" "${fit[@]}" -f -o psf.h5 ceiling.h5
        psf_shapes psf-right.h5 psf.h5 5890:6410 | awk -v seed=$seed '{ print seed, $0; exit !($1 < 0.05 && $4 < 0.4) }'
    done
    run -0 specx-psf --start "$d/arc.h5" "${fit[@]}" -o both.h5 "$d/arc.h5" ceiling.h5
    [[ "$output" == *"ceiling.h5:/image/mask: "*" pixels at a ceiling of 60000 electrons, as saturated ones are, have no flag: left out:"* ]]
    [[ "$output" != *"arc.h5:/image/mask"* && "$output" != *"lines are saturated"* ]]
    arc wings --lamp-level 1e8 --fullwell 60000
    run specx-psf --start "$d/arc.h5" "${fit[@]}" -o psf-wings.h5 wings.h5
    [[ "$output" == *"wings.h5: "*" lines are saturated in most fibres: "*"take shorter exposures"* ]]
    h5table --provenance both.h5 | grep -q saturated_pixels
    arc bright --shift 0.3,-0.2 --lamp-level 1e6 --fullwell 1e7
    run -0 specx-psf --start "$d/arc.h5" "${fit[@]}" -o psf-bright.h5 bright.h5
    [[ "$output" != *ceiling* ]]
}

@test "degrees where lines are saturated: by the spots that are not, and none that so few lines do not tell" {
    local d=$BATS_FILE_TMPDIR/d level
    # 4 of 17 lines are saturated; spots of another kind
    arc some --spots moffat --shift 0.3,-0.2 --lamp-level 3e5 --fullwell 30000
    run -0 specx-psf --start "$d/arc.h5" "${fit[@]}" -o psf.h5 some.h5
    [[ "$output" == *"all are fitted with --hermite-degree "[81]*" --shape-degree 1,2, "* ]]
    h5table -q --csv -c XSHIFT,YSHIFT -t /psffit/fibre psf.h5 | awk -F, '
        NR > 1 { n++; x += ($1 - 0.3) ^ 2; y += ($2 + 0.2) ^ 2 } END { exit !(x < n * 0.004 ^ 2 && y < n * 0.004 ^ 2) }'
    # those of the fit; nearly all lines at the higher level
    for level in 3e5 3e6; do
        arc own --shift 0.3,-0.2 --lamp-level $level --fullwell 30000
        run -0 specx-psf --start "$d/arc.h5" "${fit[@]}" -f -o own-psf.h5 own.h5
        [[ "$output" != *"all are fitted with"* ]]
    done
}

@test "degrees that fit spots of another kind are taken, where none are given" {
    local spots
    for spots in moffat psf; do
        specx-sim -q --arm r --fibers 10 --wavelength 5850,6450 --arc Ne,Kr --spots $spots -o $spots.h5
    done
    run -0 specx-psf --reproducible --start psf.h5 "${fit[@]}" -o a.h5 moffat.h5
    [[ "$output" == *"spots of bundle 0 are off the fit by 1."*" % of their light"*"with --hermite-degree 8 --hermite-width 0.75 --shape-degree 1,2, which leave 0."* ]]
    h5table --provenance a.h5 | grep -q 'degrees=8; 1,2'
    specx-psf -q --reproducible --start psf.h5 "${fit[@]}" --hermite-degree 8 --hermite-width 0.75 -o c.h5 moffat.h5
    h5diff a.h5 c.h5 /psf
    h5diff a.h5 c.h5 /psffit
    # a second try is made at the same time by another thread, or later, if at all
    for j in 1 2; do
        specx-psf -q --reproducible -j $j --start psf.h5 "${fit[@]}" -f -o other.h5 moffat.h5
        h5diff a.h5 other.h5 /psf
        h5diff a.h5 other.h5 /psffit
    done
    h5table -q --csv -c PSFERR -t /psffit/bundle a.h5 | awk 'NR == 2 { exit !($1 < 0.003) }'
    # the degrees that are given are those of the fit
    run -0 specx-psf --start psf.h5 "${fit[@]}" --hermite-degree 6 -o b.h5 moffat.h5
    [[ "$output" != *"off the fit"* ]]
    h5table -q --csv -c PSFERR -t /psffit/bundle b.h5 | awk 'NR == 2 { exit !($1 > 0.01) }'
    [[ "$output" == *"10 of 10 fibres are fitted badly"* ]]
    run -0 specx-psf --start psf.h5 "${fit[@]}" -o d.h5 psf.h5
    [[ "$output" != *"off the fit"* ]]
}
