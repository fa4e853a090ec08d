# specx-flat: flats of simulated lamps against their throughputs, frames that are divided, queues and pipes, and input
# that it has to refuse. What a flat is, tests/kernels/op_flat.c and test_flat.c check.

load common

# exposure NAME NOISE-SEED OPTION...: frame NAME.h5 of a lamp in a part of arm z, 12 fibres.
exposure() {
    specx-sim -q --arm z --fibers 12 --wavelength 8000,8300 --flat --throughput 0.1 --seed 5 --noise-seed "$2" \
        --psf-output psf.fits --truth "truth-$1.h5" -f -o "pre-$1.fits" "${@:3}"
    fits2h5 -q "pre-$1.fits" psf.fits | specx-extract -q -w 8010,8290,0.8 -o "$1.h5"
}

setup_file() {
    mkdir "$BATS_FILE_TMPDIR/d" && cd "$BATS_FILE_TMPDIR/d" || return
    exposure one 1 && exposure two 2 && exposure three 3
    specx-sim -q --arm z --fibers 12 --wavelength 8000,8300 --seed 5 -o sky.fits
    fits2h5 -q sky.fits psf.fits | specx-extract -q -w 8010,8290,0.8 -o sky.h5
    specx-flat -q --floor 0 one.h5 two.h5 three.h5 -o flat.h5
}

values() {
    h5dump -A 0 -y -w 1 -m %.17g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

# Simulated throughputs are on fine wavelengths, and their mean is not 1: both are compared at the truth's bin nearest to
# the frame's, divided by the mean over fibres there. 12 fibres x 4.7 knots leave some 90 independent numbers: the
# scatter of their pulls is known to 0.08.
@test "the flat is the throughput that was put in, within its error" {
    local d=$BATS_FILE_TMPDIR/d
    h5check "$d/flat.h5"
    { values "$d/flat.h5" /flat/wavelength | sed 's/^/w /'; values "$d/truth-one.h5" /truth/wavelength | sed 's/^/l /'
      values "$d/truth-one.h5" /truth/throughput | sed 's/^/t /'; values "$d/flat.h5" /flat/flat | sed 's/^/f /'
      values "$d/flat.h5" /flat/ivar | sed 's/^/i /'; } | awk '
        { v[$1, n[$1]++] = $2 }
        END {
            nw = n["w"]; nl = n["l"]; ns = n["f"] / nw
            for (k = 0; k < nw; k++) {
                at = int((v["w", k] - v["l", 0]) / (v["l", 1] - v["l", 0]) + 0.5)
                mean = 0
                for (i = 0; i < ns; i++) mean += v["t", i * nl + at] / ns
                for (i = 0; i < ns; i++) {
                    p = (v["f", i * nw + k] - v["t", i * nl + at] / mean) * sqrt(v["i", i * nw + k])
                    sum += p * p; m++
                    if (p > 6 || p < -6) bad++
                }
            }
            printf "scatter of pulls %.3f of %d, %d beyond 6\n", sqrt(sum / m), m, bad
            exit bad > 0 || sum / m > 1.25 ^ 2 || sum / m < 0.75 ^ 2
        }'
}

@test "frames that are divided: one level, marked, everything handed on" {
    local d=$BATS_FILE_TMPDIR/d
    specx-flat -q --apply "$d/flat.h5" "$d/one.h5" -o out.h5
    h5check out.h5
    h5diff out.h5 "$d/one.h5" /frame/resolution
    h5diff out.h5 "$d/one.h5" /fibermap
    h5diff out.h5 "$d/one.h5" /frame/header
    # mean flux of each fibre: some 10 % apart before, below 1 % behind
    spread() {
        h5reduce -q -p mean --axis 1 "$1:/frame/flux" -o mean.h5 -f
        values mean.h5 /reduce/value |
            awk '{ s += $1; q += $1 * $1; n++ } END { print sqrt(q / n - (s / n) ^ 2) / (s / n) }'
    }
    awk -v a="$(spread "$d/one.h5")" -v b="$(spread out.h5)" 'BEGIN { print a, b; exit !(a > 0.02 && b < 0.01 && b < a / 5) }'
    fails_with 3 '*divided by a flat field before*' specx-flat --apply "$d/flat.h5" out.h5 -o twice.h5
    fails_with 3 '*out.h5*divided by a flat field before*' specx-flat out.h5 -o twice.h5
}

@test "fibres are matched by their index in the PSF" {
    local d=$BATS_FILE_TMPDIR/d
    specx-flat -q --apply "$d/flat.h5" "$d/one.h5" --precision double -o all.h5
    fits2h5 -q "$d/pre-one.fits" "$d/psf.fits" | specx-extract -q -s 4:6 -w 8010,8290,0.8 |
        specx-flat -q --apply "$d/flat.h5" --precision double -o two.h5
    h5dump -A 0 -d /frame/fiber two.h5 | grep -q '(0): 4, 5'
    cmp <(values two.h5 /frame/flux) <(values all.h5 /frame/flux | awk 'NR > 4 * 351 && NR <= 6 * 351')
    fits2h5 -q "$d/pre-one.fits" "$d/psf.fits" | specx-extract -q -s 0:5 -w 8010,8290,0.8 -o five.h5
    specx-flat -q five.h5 -o small.h5
    fails_with 3 '*the flat has no fibre 5*' specx-flat --apply small.h5 "$d/one.h5" -o out.h5
}

@test "the same bits for any number of threads, from files and pipes" {
    local d=$BATS_FILE_TMPDIR/d
    specx-flat -q --reproducible -j 1 "$d"/{one,two,three}.h5 -o a.h5
    specx-flat -q --reproducible -j 3 "$d"/{one,two,three}.h5 -o b.h5
    cat "$d"/{one,two,three}.h5 | specx-flat -q --reproducible -j 2 | cat >c.h5
    h5diff a.h5 b.h5 /flat
    h5diff a.h5 c.h5 /flat
    specx-flat -q --apply a.h5 --reproducible -j 1 "$d/sky.h5" -o e.h5
    specx-flat -q --apply a.h5 --reproducible -j 3 <"$d/sky.h5" | cat >f.h5
    h5diff e.h5 f.h5 /frame
}

@test "a queue of frames: a folder, a pipe, existing outputs, one that fails" {
    local d=$BATS_FILE_TMPDIR/d
    mkdir out
    specx-flat -q --apply "$d/flat.h5" "$d/one.h5" "$d/sky.h5" -o out/
    h5check out/one.h5 out/sky.h5
    fails_with 4 '*2 of 2 frames exist already*' specx-flat --apply "$d/flat.h5" "$d/one.h5" "$d/sky.h5" -o out/
    rm out/one.h5
    run -0 specx-flat --apply "$d/flat.h5" --skip-existing "$d/one.h5" "$d/sky.h5" -o out/
    [[ $output == *'1 of 2 frames exist already: kept'* ]]
    cat "$d/one.h5" "$d/two.h5" | specx-flat -q --apply "$d/flat.h5" -o 'p-%s.h5'
    h5check p-001.h5 p-002.h5
    echo nothing >bad.h5
    mkdir more
    fails_with 3 '*bad.h5*' specx-flat --apply "$d/flat.h5" bad.h5 "$d/one.h5" -o more/
    [ -e more/one.h5 ] && [ ! -e more/bad.h5 ]
}

@test "a dead fibre, half of a fibre masked, a hit" {
    local d=$BATS_FILE_TMPDIR/d f
    for f in one two three; do
        cp "$d/$f.h5" .
        h5edit "$f.h5" range /frame/flux $((3 * 351)) $((4 * 351)) 0
        h5edit "$f.h5" range /frame/mask $((5 * 351)) $((5 * 351 + 180)) 1
    done
    h5edit one.h5 set /frame/flux $((7 * 351 + 100)) 90000
    run -0 specx-flat one.h5 two.h5 three.h5 -o out.h5
    [[ $output == *'1 of 12 fibres have no flat (mask BADFIBERFLAT)'*': 3'* ]]
    [[ $output == *'have no flat (mask LOWFLAT)'* ]]
    [[ $output == *', 1 of '*' bins rejected'* ]]
    h5check out.h5
    [ "$(values out.h5 /flat/flat | awk 'NR > 3 * 351 && NR <= 4 * 351' | sort -u)" = 1 ]
    [ "$(values out.h5 /flat/ivar | awk 'NR > 3 * 351 && NR <= 4 * 351' | sort -u)" = 0 ]
    run -0 specx-flat --apply out.h5 "$d/sky.h5" -o sky.h5
    [[ $output == *'bins have no flat field: ivar 0 there'* ]]
    # the rest of the half-masked fibre is as good as before
    paste <(values out.h5 /flat/flat) <(values "$d/flat.h5" /flat/flat) <(values "$d/flat.h5" /flat/ivar) |
        awk 'NR <= 351 { norm[NR] = $1 / $2 } # the dead fibre is no longer in the mean
             NR > 5 * 351 + 220 && NR <= 6 * 351 { p = ($1 / norm[NR - 5 * 351] - $2) * sqrt($3); if (p > 3 || p < -3) bad++ }
             END { exit bad > 0 }'
}

@test "one exposure, one fibre" {
    local d=$BATS_FILE_TMPDIR/d
    run -0 specx-flat "$d/one.h5" -o out.h5
    [[ $output == *'from 1 exposure: chi2 '* ]]
    fails_with 2 '*--native*' specx-flat --native "$d/one.h5" -o native.h5
    fits2h5 -q "$d/pre-one.fits" "$d/psf.fits" | specx-extract -q -s 4:5 -w 8010,8290,0.8 -o single.h5
    run -0 specx-flat single.h5 -o single-flat.h5
    [[ $output == *'with a single fibre'*'its flat is 1'* ]]
    h5check single-flat.h5
    values single-flat.h5 /flat/flat | awk '$1 < 0.999999 || $1 > 1.000001 { bad++ } END { exit bad > 0 }'
}

@test "frames that are no flats are warned of" {
    local d=$BATS_FILE_TMPDIR/d
    run -0 specx-flat "$d/sky.h5" -o out.h5
    [[ $output == *'is it a flat?'* ]]
    [[ $output == *'chi2 is '* ]]
    h5check out.h5
}

@test "an exposure that is there twice is warned of, under another name, too" {
    local d=$BATS_FILE_TMPDIR/d
    cp "$d/one.h5" copy.h5
    run -0 specx-flat "$d/one.h5" copy.h5 -o out.h5
    [[ $output == *'warning: copy.h5: has the light of an input before it, to the last digit: '* ]]
    run -0 specx-flat "$d/one.h5" "$d/one.h5" -f -o out.h5
    [[ $output == *'warning: '*'one.h5: has the light of an input before it'* ]]
}

@test "barycentric frames get the flat of where their bins are" {
    local d=$BATS_FILE_TMPDIR/d
    # lamps have no direction
    specx-sim -q --arm z --fibers 12 --wavelength 8000,8300 --throughput 0.1 --seed 5 --mjd 60310.4 \
        --site kpno -o pre.fits
    fits2h5 -q pre.fits "$d/psf.fits" -o image.h5
    specx-extract -q --barycentric -w 8015,8285,0.8 image.h5 -o bary.h5
    fails_with 3 '*barycentric*' specx-flat bary.h5 -o out.h5
    specx-flat -q --apply "$d/flat.h5" bary.h5 -o out.h5
    h5check out.h5
    diff <(values out.h5 /frame/mask) <(values bary.h5 /frame/mask)
    specx-extract -q --barycentric -w 7950,8285,0.8 image.h5 -o wide.h5
    fails_with 3 '*same --wavelength*' specx-flat --apply "$d/flat.h5" wide.h5 -o wide-out.h5
    specx-flat -q --native "$d/one.h5" "$d/two.h5" -o native.h5
    fails_with 3 '*single bins cannot be shifted*' specx-flat --apply native.h5 bary.h5 -o out2.h5
}

@test "options" {
    local d=$BATS_FILE_TMPDIR/d
    specx-flat -q --floor 0.01 "$d"/{one,two,three}.h5 -o floor.h5
    # errors in quadrature
    paste <(values floor.h5 /flat/ivar) <(values "$d/flat.h5" /flat/ivar) <(values floor.h5 /flat/flat) |
        awk '{ d = 1 / $1 - 1 / $2 - (0.01 * $3) ^ 2; if (d > 1e-9 || d < -1e-9) bad++ } END { exit bad > 0 || NR == 0 }'
    specx-flat -q --knots 20 "$d"/{one,two,three}.h5 -o fine.h5
    awk -v a="$(values fine.h5 /flat/ivar | head -n 176 | tail -n 1)" \
        -v b="$(values "$d/flat.h5" /flat/ivar | head -n 176 | tail -n 1)" 'BEGIN { exit !(a < 0.6 * b) }'
    specx-flat -q --lamps one "$d"/{one,two,three}.h5 -o lamp.h5
    # one shape: the ratio of two exposures is the same at all wavelengths
    values lamp.h5 /flat/lamp | awk '{ v[NR] = $1 } END {
        for (k = 1; k <= 351; k++) { r = v[k] / v[k + 351]; if (k == 1) s = r; if (r / s > 1.000001 || r / s < 0.999999) bad++ }
        exit bad > 0 }'
    specx-flat -q --reject 2 "$d"/{one,two,three}.h5 -o strict.h5
    [ "$(h5table --provenance strict.h5 | sed -n 's/.*bins_rejected=\([0-9]*\).*/\1/p')" -gt 300 ]
    fails_with 2 '*--knots*' specx-flat --knots 2 "$d/one.h5" -o out.h5
    fails_with 2 '*without --apply*' specx-flat --apply "$d/flat.h5" --knots 20 "$d/one.h5" -o out.h5
    fails_with 2 '*--skip-existing*' specx-flat --skip-existing "$d/one.h5" -o out.h5
}

@test "single bins: --native divides the resolution matrix, too" {
    local d=$BATS_FILE_TMPDIR/d f
    for f in one two three; do
        cp "$d/$f.h5" .
        h5edit "$f.h5" set /frame/flux $((6 * 351 + 150)) \
            "$(values "$f.h5" /frame/flux | awk 'NR == 6 * 351 + 151 { print 0.8 * $1 }')"
    done
    specx-flat -q --floor 0 one.h5 two.h5 three.h5 -o smooth.h5
    specx-flat -q --floor 0 --native one.h5 two.h5 three.h5 -o native.h5
    paste <(values native.h5 /flat/flat) <(values smooth.h5 /flat/flat) |
        awk 'NR == 6 * 351 + 151 { r = $1 / $2 } END { print r; exit !(r > 0.76 && r < 0.84) }'
    specx-flat -q --apply native.h5 --precision double one.h5 -o out.h5
    run ! h5diff -q out.h5 one.h5 /frame/resolution
}

@test "frames that do not fit" {
    local d=$BATS_FILE_TMPDIR/d
    fits2h5 -q "$d/pre-two.fits" "$d/psf.fits" | specx-extract -q -w 8010,8280,0.8 -o short.h5
    fits2h5 -q "$d/pre-two.fits" "$d/psf.fits" | specx-extract -q -s 0:4 -w 8010,8290,0.8 -o few.h5
    fails_with 3 '*short.h5: has other wavelengths*' specx-flat "$d/one.h5" short.h5 -o out.h5
    fails_with 3 '*few.h5: has 4 fibres*' specx-flat "$d/one.h5" few.h5 -o out.h5
    fails_with 3 '*short.h5*bins*' specx-flat --apply "$d/flat.h5" short.h5 -o out.h5
    cp "$d/two.h5" other.h5
    h5edit other.h5 attr /frame camera z7
    fails_with 3 '*other.h5: is of camera z7*one camera at a time*' specx-flat "$d/one.h5" other.h5 -o out.h5
    fails_with 3 '*flat is of camera z0, the frame of camera z7*' specx-flat --apply "$d/flat.h5" other.h5 -o out.h5
    fails_with 3 '*no frame*' specx-flat "$d/flat.h5" -o out.h5
    fails_with 3 '*' specx-flat --apply "$d/one.h5" "$d/one.h5" -o out.h5
    cp "$d/two.h5" dark.h5
    h5edit dark.h5 fill /frame/ivar 0
    fails_with 3 '*no fibre has light*' specx-flat dark.h5 -o out.h5
    cp "$d/two.h5" none.h5
    h5edit none.h5 delete /frame/resolution
    fails_with 3 '*no resolution*' specx-flat none.h5 -o out.h5
    [ ! -e out.h5 ]
}
