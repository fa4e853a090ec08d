# specx-shift: simulated exposures whose traces have moved, pipes and files, exposures without light or lines.

load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --arm z --fibers 50 --sky-fibers 15 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8300,8800 \
        --shift 0.06,0.05,0.01,0.01 --psf-output psf.fits -o image.fits
    fits2h5 -q image.fits psf.fits -o image.h5
    specx-shift -q --reproducible -j 2 -o shifted.h5 image.h5
}

# values FILE PATH: one number a line.
values() {
    h5dump -A 0 -y -w 1 -m %.12g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

# figure FILE NAME: an attribute of /shift.
figure() { h5dump -a "/shift/$2" "$1" | awk '/\(0\)/ { print $2 }'; }

# near FILE PATH VALUE TOLERANCE: rms of the dataset about a value.
near() {
    values "$1" "$2" | awk -v x="$3" -v t="$4" '{ s += ($1 - x)^2 } END { r = sqrt(s / NR); print r; exit !(r < t) }'
}

# between FIGURE LOW HIGH
between() { awk -v x="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(x >= low && x <= high) }'; }

@test "shifts and widths are those that were put in" {
    local f=$BATS_FILE_TMPDIR/shifted.h5
    h5check "$f"
    near "$f" /shift/dx 0.06 0.005
    near "$f" /shift/width_x 0.01 0.006
    near "$f" /shift/dy 0.05 0.02
    between "$(figure "$f" zero_point)" -0.045 -0.015 # 0.05 pixel of 0.6 Angstrom
    between "$(figure "$f" lines)" 20 200
    [ "$(values "$f" /shift/flags | sort -u)" = 0 ]
    [ "$(h5table --provenance "$f" | grep -c '^ *chi2=')" = 1 ]
}

# The error of a width is mostly what all fibres share, so that pulls of one exposure are those of few numbers: of 24
# exposures they were 0.10 to 1.76, of six 0.90 +- 0.19.
@test "widths of six exposures have the errors that are said" {
    local seed
    for seed in 0 1 2 3 4 5; do
        specx-sim -q -f --arm z --fibers 50 --sky-fibers 15 --snr 5:30 --seed $seed --cosmics 0 --bad-columns 0 \
            --wavelength 8300,8800 --shift 0.06,0.05,0.01,0.01 -o six.h5
        specx-shift -q -f -j 2 -o six-shifted.h5 six.h5
        paste -d' ' <(values six-shifted.h5 /shift/width_x) <(values six-shifted.h5 /shift/width_x_error)
    done >six.txt
    # 1.4: where each step added a degree that the PSF has not, with its noise, one exposure had 1.38
    awk '{ s += (($1 - 0.01) / $2)^2 } END { r = sqrt(s / NR); print r; exit !(NR == 2700 && r > 0.45 && r < 1.4) }' six.txt
}

# Rows of each fibre by 0.05 pixel, without noise: what targets and sky fibres differ by in the mean is the grid's. In bins of
# 0.8 Angstrom the [O I] line at 6302, beside a star, is 0.004 Angstrom elsewhere, and the mean -0.0078 pixel.
@test "the brightest line of r is where it is beside a star, too" {
    local seed
    echo 'y fiber 0.05' >rows.txt
    for seed in 1 2 3; do
        specx-sim -q -f --arm r --fibers 50 --sky-fibers 15 --snr 40:60 --seed $seed --cosmics 0 --bad-columns 0 --no-noise \
            --wavelength 6240,6420 --shift rows.txt --truth t.h5 -o image.h5
        # a frame in these bins is not used, also where it is given
        [ $seed != 2 ] || {
            specx-extract -q -w 6240,6420,0.8 -o frame.h5 image.h5
            h5copy -i frame.h5 -o image.h5 -s /frame -d /frame
            run -0 --separate-stderr specx-shift -f --psf-only -o out.h5 image.h5
            [[ $stderr == *'bins of /frame are 1.3'*'bins of 0.6'* ]]
            run -0 --separate-stderr specx-shift -f -w 6240,6420,0.8 --psf-only -o out.h5 image.h5
            [[ $stderr == *'warning: bins of 0.8 Angstrom are 1.3'*'give 0.7'* ]]
        }
        specx-shift -q -f -j 2 --psf-only -o out.h5 image.h5
        paste -d' ' <(h5table --csv -t /truth/table -c OBJTYPE t.h5 | tail -n +2 | awk '{ for (k = 0; k < 9; k++) print }') \
            <(values out.h5 /shift/dy) <(values t.h5 /truth/shift/y | awk 'NR % 65 == 33 { for (k = 0; k < 9; k++) print }')
    done >beside.txt
    # the same at all wavelengths: the truth in the middle
    awk '{ n[$1]++; s[$1] += $2 - $3; r += ($2 - $3)^2 } END { d = s["TGT"] / n["TGT"] - s["SKY"] / n["SKY"]
        print d, sqrt(r / NR); exit !(NR == 1350 && d * d < 0.005^2) }' beside.txt
}

@test "an arc of a camera whose spots are five times as wide, or a fifth as wide" {
    local camera
    # bins of 0.8 Angstrom, a quarter of the wide spots' sigma, took more than a minute and 930 MB; windows of 60, which are 24 rows
    # in the second camera, left x as it was
    for camera in 3.2:5760,7620 2.5,pitch=9:5600,7200 0.12:6300,6500; do
        specx-sim -q -f --arm r --camera "dispersion=${camera%:*}" -w "${camera#*:}" --fibers 20 --arc all --step 0.02 \
            --shift 0.06,-0.05 -o arc.h5
        specx-shift -q -f --lamp --psf-only -o out.h5 arc.h5
        near out.h5 /shift/dy -0.05 0.008
        near out.h5 /shift/dx 0.06 0.012
        paste -d' ' <(values out.h5 /shift/dy) <(values out.h5 /shift/dy_error) |
            awk '{ s += (($1 + 0.05) / $2)^2 } END { r = sqrt(s / NR); print r; exit !(NR == 180 && r < 1.6) }'
    done
}

@test "a second time there is nothing left to move" {
    local f=$BATS_FILE_TMPDIR/shifted.h5
    specx-shift -q -o again.h5 "$f"
    near again.h5 /shift/dx 0 0.003
    near again.h5 /shift/dy 0 0.006
    between "$(figure again.h5 zero_point)" -0.001 0.001
    near again.h5 /shift/width_y 0 0.002
    # within the errors: the second measurement is of the same noise
    paste -d' ' <(values again.h5 /shift/dx) <(values again.h5 /shift/dx_error) <(values again.h5 /shift/dy) \
        <(values again.h5 /shift/dy_error) | awk '{ x += ($1 / $2)^2; y += ($3 / $4)^2 }
        END { printf "rms of pulls %.2f, %.2f\n", sqrt(x / NR), sqrt(y / NR); exit !(x < NR && y < NR) }'
}

@test "outputs that exist are kept with --skip-existing, and are errors of their exposure without" {
    local d=$BATS_FILE_TMPDIR
    cp "$d/image.h5" a.h5
    cp "$d/image.h5" b.h5
    mkdir out
    echo kept >out/a.h5
    run -4 --separate-stderr specx-shift --no-width --windows 2 -o out/ a.h5 b.h5
    # shellcheck disable=SC2154 # of run
    [[ $stderr == *"out/a.h5: exists already: give --skip-existing"* ]]
    [ "$(cat out/a.h5)" = kept ]
    h5check out/b.h5
    rm out/b.h5
    specx-shift -q --no-width --windows 2 --skip-existing -o out/ a.h5 b.h5
    [ "$(cat out/a.h5)" = kept ]
    h5check out/b.h5
}

@test "traces that have not moved stay, within the errors" {
    specx-sim -q --arm z --fibers 50 --sky-fibers 15 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8300,8800 \
        --seed 7 --psf-output psf.fits -o image.fits
    fits2h5 -q image.fits psf.fits | specx-shift -q -o out.h5
    local q
    for q in x y; do
        paste -d' ' <(values out.h5 /shift/d$q) <(values out.h5 /shift/d${q}_error) | awk '{ s += ($1 / $2)^2; m += $1 }
            END { printf "rms of pulls %.2f, mean %.4f\n", sqrt(s / NR), m / NR; exit !(s < 2.25 * NR && m^2 < 9e-5 * NR^2) }'
    done
}

@test "pipes and files, any number of threads: the same PSF; extraction takes it as it is" {
    local d=$BATS_FILE_TMPDIR
    fits2h5 -q "$d/image.fits" "$d/psf.fits" | specx-shift -q -j 1 | cat >piped.h5
    h5diff piped.h5 "$d/shifted.h5" /psf
    h5diff piped.h5 "$d/shifted.h5" /shift
    h5diff piped.h5 "$d/image.h5" /image
    specx-extract -q -o frame.h5 piped.h5
    h5dump -A frame.h5 >dump 2>&1
    run ! grep -q unknown dump # texts of blocks that were copied have the type of all texts
    specx-shift -q --psf-only -o only.h5 "$d/image.h5"
    [ "$(h5ls only.h5 | grep -c image)" = 0 ]
    fits2h5 -q "$d/image.fits" -o alone.h5
    specx-extract -q -o two.h5 only.h5 alone.h5
    h5diff two.h5 frame.h5 /frame
}

@test "what several programs have measured is handed on, and files that options name are recorded" {
    local d=$BATS_FILE_TMPDIR p
    specx-extract -q -o frame.h5 "$d/shifted.h5"
    specx-sky -q -o sky.h5 frame.h5
    fits2h5 -q "$d/image.fits" "$d/psf.fits" | specx-extract -q -o lamp.h5
    specx-flat -q -o flat.h5 lamp.h5
    specx-flat -q --apply flat.h5 -o flattened.h5 sky.h5
    for p in shift sky/{model,sky,covariance,table,mask,parameters}; do # not what lists the users of a scale: its order
        h5diff flattened.h5 sky.h5 "/$p"
    done
    h5check flattened.h5
    h5table --provenance flattened.h5 | tail -25 | grep -F 'flat.h5 ('
    specx-sky -q --flat flat.h5 -o both.h5 frame.h5
    h5table --provenance both.h5 | tail -25 | grep -F 'flat.h5 ('
    mkdir queue
    cp frame.h5 second.h5
    specx-sky -q --flat flat.h5 -o queue/ frame.h5 second.h5
    h5table --provenance queue/second.h5 | tail -25 | grep -F 'flat.h5 ('
}

@test "what was measured goes through extraction, sky and all that follows: one, a queue, a PSF in its own file" {
    local d=$BATS_FILE_TMPDIR
    specx-extract -q -o frame.h5 "$d/shifted.h5"
    h5diff frame.h5 "$d/shifted.h5" /shift
    h5check frame.h5
    specx-sky -q -o sframe.h5 frame.h5
    h5diff sframe.h5 frame.h5 /shift
    # of two images each has its own; that of a PSF without an image serves all that use the PSF
    specx-sim -q --arm z --fibers 50 --sky-fibers 15 --snr 5:30 --seed 2 --wavelength 8300,8800 -f -o b.fits
    fits2h5 -q b.fits -o b.h5
    specx-shift -q --psf-only -o psf.h5 "$d/image.h5"
    cp "$d/shifted.h5" a.h5
    mkdir out
    specx-extract -q -o out/ psf.h5 a.h5 b.h5
    h5diff out/a.h5 a.h5 /shift
    h5diff out/b.h5 psf.h5 /shift
    # a PSF that has not moved
    specx-extract -q -o plain.h5 "$d/image.h5"
    [ "$(h5ls plain.h5 | grep -c shift)" = 0 ]
}

@test "a frame that is there is used, and is not handed on" {
    local d=$BATS_FILE_TMPDIR
    specx-extract -q -o frame.h5 "$d/image.h5"
    cp "$d/image.h5" both.h5
    h5copy -i frame.h5 -o both.h5 -s /frame -d /frame
    specx-shift -q -o out.h5 both.h5
    near out.h5 /shift/dy 0.05 0.02
    cp both.h5 other.h5 && h5edit other.h5 set /frame/fiber 3 70
    fails_with 3 '*/frame/fiber: fibre 70 is not one of the PSF*' specx-shift -q -o x.h5 other.h5
    cp both.h5 other.h5 && h5edit other.h5 set /frame/fiber 3 2
    fails_with 3 '*/frame/fiber: fibre 2 is there twice*' specx-shift -q -o x.h5 other.h5
    cp both.h5 plain.h5 && h5edit plain.h5 delete /frame/fiber
    specx-shift -q -o plain-out.h5 plain.h5
    h5diff plain-out.h5 out.h5 /shift
    cp both.h5 matrix.h5 && h5edit matrix.h5 delete /frame/resolution
    fails_with 3 '*resolution*' specx-shift -q -o x.h5 matrix.h5
    cp both.h5 camera.h5 && h5edit camera.h5 attr /frame camera r7
    fails_with 3 '*camera.h5:/frame: is of camera r7, the PSF of camera z0: leave it out*' specx-shift -q -o x.h5 camera.h5
    run -0 h5ls out.h5
    [[ $output != *frame* ]]
}

@test "without lines, sky fibres or light: the old traces, flagged" {
    local d=$BATS_FILE_TMPDIR
    specx-shift -q --lines none -o none.h5 "$d/image.h5"
    [ "$(values none.h5 /shift/flags | sort -u)" = 8 ]
    between "$(figure none.h5 lines)" 0 0
    near none.h5 /shift/dy 0 0.02 # the mean over sky fibres is 0
    run -0 --separate-stderr specx-shift --sky-fibers 0 -o one.h5 "$d/image.h5"
    [[ $stderr == *"sky fibres: two or more"* && $stderr == *"y stays as it was"* ]]
    h5diff one.h5 "$d/image.h5" /psf/ytrace
    [ "$(values one.h5 /shift/dy_error | sort -u)" = 0.5 ]
    specx-sim -q --arm z --fibers 25 --no-sky --mag 40 --wavelength 8300,8500 --psf-output dark-psf.fits -o dark.fits -f
    fits2h5 -q dark.fits dark-psf.fits -o dark.h5
    run -0 --separate-stderr specx-shift -o dark-out.h5 dark.h5
    [[ $stderr == *"stay where they were"* ]]
    h5diff dark-out.h5 dark.h5 /psf
    [ "$(values dark-out.h5 /shift/dx_error | sort -u)" = 0.5 ]
    [ "$(figure dark-out.h5 chi2_after)" = "$(figure dark-out.h5 chi2_before)" ]
    h5check dark-out.h5
}

@test "a few sky fibres in half an arm tell the zero point" {
    # seeds 1, 4 and 11 of 16 took more than 8 steps, and had none
    for seed in 1 4; do
        specx-sim -q --seed $seed --arm r --fibers 12 --sky-fibers 4 --wavelength 6200,6700 --shift 0.06,-0.04 \
            --throughput 0.1 --no-flag-cosmics --snr 40:60 --psf-output few-psf.fits -f -o few.fits
        fits2h5 -q few.fits few-psf.fits | specx-shift -q --psf-only -f -o few.h5
        between "$(figure few.h5 lines)" 15 40
        # 0.04 pixel are 0.023 Angstrom
        between "$(figure few.h5 zero_point)" -0.01 0.06
        between "$(figure few.h5 zero_point_error)" 0.003 0.02
    done
}

# pulls FILE NAME TRUE LOW HIGH: rms of (dataset - TRUE)/error where there is one
pulls() {
    paste -d' ' <(values "$1" "/shift/$2") <(values "$1" "/shift/$2_error") | awk -v t="$3" -v low="$4" -v high="$5" '
        $2 > 0 { n++; s += (($1 - t) / $2)^2 } END { r = sqrt(s / n); print r, n; exit !(n > NR / 2 && r > low && r < high) }'
}

@test "spots of two cores and a tail: a BOSS PSF" {
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    specx-sim -q --psf "$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits" --fibers 0:25 --wavelength 6200,6600 \
        --sky-fibers 10 --snr 20:60 --shift 0.06,0.05,0.01,0.01 --cosmics 0 -o image.h5
    specx-shift -q -w 6210,6590,2 -o out.h5 image.h5
    h5check out.h5
    [ "$(h5dump -a /psf/psftype out.h5 | grep -c gauss-hermite2)" = 1 ]
    pulls out.h5 dx 0.06 0.5 1.5
    pulls out.h5 width_x 0.01 0.5 1.6
    pulls out.h5 dy 0.05 0.3 1.5
    # the PSF that comes out is right, and stays a PSF beyond the wavelengths that were measured
    specx-shift -q --psf-only -w 6210,6590,2 -o again.h5 out.h5
    # but for a part of its noise, which the prior of smooth functions has left out
    pulls again.h5 dx 0 0 0.8
    pulls again.h5 width_x 0 0 0.5
    specx-extract -q -w 5500,5600,2 -o blue.h5 out.h5
}

@test "an eighth of an arm is measured: beyond it the PSF stays one, near its old place" {
    local seed
    for seed in 2 6 812; do
        specx-sim -q -f --arm z --fibers 25 --seed $seed --sky-fibers 8 --snr 10:40 --shift 0.05,0.05,0.01,0.01 --cosmics 0 \
            --bad-columns 0 --truth truth.h5 -o image.h5
        specx-shift -q -f --psf-only -w 8400,8700,0.8 -o out.h5 image.h5
        between "$(psf_places out.h5 truth.h5 8400:8700)" 0 0.03
        between "$(psf_places out.h5 truth.h5 7500:9800)" 0 0.25 # 2 pixels, or no spots, without a prior
    done
}

@test "tails of two bundles do not make spots wider" {
    specx-sim -q --arm z --fibers 50 --bundles 2x25 --sky-fibers 15 --snr 20:60 --cosmics 0 --bad-columns 0 \
        --wavelength 8300,8600 --shift 0.06,0.05,0.01,0.01 --camera tail=0.007,tail-index=2.2 --format hdf5 -o image.h5
    specx-shift -q -w 8310,8590,0.8 -o out.h5 image.h5
    pulls out.h5 dx 0.06 0.5 1.2
    pulls out.h5 width_x 0.01 0.5 1.4 # with tails on the image 6.8
    specx-shift -q -j 1 -w 8310,8590,0.8 -o one.h5 image.h5
    specx-shift -q -j 2 -w 8310,8590,0.8 -o two.h5 image.h5
    h5diff one.h5 two.h5 /shift
    h5diff one.h5 two.h5 /psf
}

@test "spots that lean" {
    local f=$BATS_FILE_TMPDIR/image.h5
    cp "$f" tilt.h5
    psf_edit tilt.h5 tilt 0.15
    specx-sim -q --psf tilt.h5 --fibers 0:50 --sky-fibers 15 --snr 20:60 --cosmics 0 --bad-columns 0 \
        --wavelength 8300,8600 --shift 0.06,0.05 -o image.h5
    specx-shift -q --psf-only -w 8300,8600,0.8 -o out.h5 image.h5
    near out.h5 /shift/dx 0.06 0.006
    near out.h5 /shift/dy 0.05 0.03
    pulls out.h5 dx 0.06 0.5 1.5
}

@test "traces with ranges of their own, bundles of unequal size" {
    local d=$BATS_FILE_TMPDIR f
    cp "$d/image.h5" ranges.h5
    psf_edit ranges.h5 orders 8200:8900,8250:8850,8290:8820 bundles 25,13,12 valid 3 8300:8600
    h5check ranges.h5
    specx-shift -q --bundle-size 25 -w 8300,8800,0.8 -o plain.h5 "$d/image.h5"
    specx-shift -q --bundle-size 25 -w 8300,8800,0.8 -o out.h5 ranges.h5
    h5check out.h5
    for f in dx width_x dy; do # fibre 3 has fewer windows
        paste -d' ' <(values out.h5 /shift/$f) <(values plain.h5 /shift/$f) <(values plain.h5 /shift/${f}_error) | awk '
            { d = ($1 - $2) / $3; s += d * d } END { r = sqrt(s / NR); print r; exit !(NR == 450 && r < 0.25) }'
    done
    # the moved PSF is the same where the ranges are not: rows of a spectrum that is drawn through both
    specx-extract -q --bundle-size 25 -w 8320,8780,0.8 -o a.h5 out.h5
    specx-extract -q --bundle-size 25 -w 8320,8780,0.8 -o b.h5 plain.h5
    paste -d' ' <(values a.h5 /frame/flux) <(values b.h5 /frame/flux) <(values b.h5 /frame/ivar) | awk '
        $1 != 0 { d = ($1 - $2) * ($1 - $2) * $3; n++; s += d } END { print n, sqrt(s / n); exit !(n > 20000 && s < 0.01 * n) }'
    # bundles that the PSF names; they are none of this image's, but fibres of a bundle go on as one
    specx-shift -q -w 8300,8800,0.8 --psf-only -o own.h5 ranges.h5
    near own.h5 /shift/dx 0.06 0.01
    [ "$(h5dump -a /shift/coefficients/bundles own.h5 | awk '/\(0\)/ { print $2 }')" = 3 ]
}

@test "bad input has its status" {
    local d=$BATS_FILE_TMPDIR
    fails_with 2 '*--terms-x*' specx-shift -q --terms-x 2 -o x.h5 "$d/image.h5"
    fails_with 2 '*--terms-y*' specx-shift -q --terms-y 2,99 -o x.h5 "$d/image.h5"
    fails_with 2 '*contradict*' specx-shift -q --lamp --sky-fibers 3 -o x.h5 "$d/image.h5"
    printf '8400 1\nred 2\n' >bad.txt
    fails_with 3 '*bad.txt:2: should be*' specx-shift -q --lines bad.txt -o x.h5 "$d/image.h5"
    : >empty.txt
    fails_with 3 '*empty.txt: has no lines*' specx-shift -q --lines empty.txt -o x.h5 "$d/image.h5"
    fails_with 3 '*absent.txt*' specx-shift -q --lines absent.txt -o x.h5 "$d/image.h5"
    specx-extract -q -o frame.h5 "$d/image.h5"
    fails_with 3 '*holds neither an image nor a PSF*' specx-shift -q -o x.h5 frame.h5
    local set
    for set in coeff xtrace ytrace; do # of coeff, specx-shift called it a bug, and specx-extract went on
        cp "$d/image.h5" nan.h5 && h5edit nan.h5 set "/psf/$set" 11 nan
        fails_with 3 "*nan.h5:/psf/$set: a coefficient of trace [0-9]* is not finite: make the PSF again" specx-shift -q -o x.h5 nan.h5
        fails_with 3 "*nan.h5:/psf/$set: a coefficient of trace *" specx-extract -q -o x.h5 nan.h5
    done
    [ ! -e x.h5 ]
}

# What is left of a shift: FILE NAME TRUTH NAME TOLERANCE [PULL], rms over fibres and wavelengths, and limit of the pulls; a
# place in nine is one in 65. The first and the last are beyond the light, where the PSF's polynomials only go on.
left() {
    paste -d' ' <(values "$1" "/shift/$2") <(values "$3" "/truth/shift/$4" | awk '(NR - 1) % 65 % 8 == 0') \
        <(values "$1" "/shift/$2_error") | awk -v t="$5" -v most="${6:-1e9}" '
            NF != 3 { exit bad = 1 }
            (NR - 1) % 9 % 8 { n++; s += ($1 - $2)^2; q += $2 * $2; p += (($1 - $2) / $3)^2 }
            END {
                r = sqrt(s / n)
                printf "%.4f left of %.4f, rms of pulls %.2f\n", r, sqrt(q / n), sqrt(p / n)
                exit bad || !(r < t) || !(sqrt(p / n) < most)
            }'
}

@test "arcs: lamp lines give shifts along the traces and the zero point" {
    specx-sim -q --arm r --fibers 25 --arc Ne --wavelength 6200,6800 --shift 0.02,0.1 --psf-output p.fits -o arc.fits
    fits2h5 -q arc.fits p.fits -o arc.h5
    specx-shift -q --lamp -o out.h5 arc.h5
    near out.h5 /shift/dy 0.1 0.02
    between "$(figure out.h5 lines)" 5 40
    # lines so bright that a round left 0.010 pixel, 8.5 errors
    specx-sim -q --arm z --fibers 25 --arc all --wavelength 8000,8800 --shift wave --truth t.h5 -o wave.h5
    specx-shift -q --lamp -o moved.h5 wave.h5
    left moved.h5 dy t.h5 y 0.004 1.4
    between "$(figure moved.h5 rounds)" 2 3
    # 1.3 waves over the slit, which a prior of degree 4 does not follow, and fibres of their own, of which a tenth was
    # left while each round had a prior of what the last one had left: y 0.0021, pulls 1.5
    specx-sim -q --arm z --fibers 75 --arc all --shift wave --cosmics 1 --truth slit.h5 -o slit-arc.h5
    specx-shift -q --psf-only --lamp -o slit-psf.h5 slit-arc.h5
    left slit-psf.h5 dy slit.h5 y 0.0018 1.2
    # a frame serves the first round
    specx-extract -q -w 8000,8800,0.8 -o frame.h5 wave.h5
    h5copy -i frame.h5 -o wave.h5 -s /frame -d /frame
    specx-shift -q --lamp -o beside.h5 wave.h5
    left beside.h5 dy t.h5 y 0.004 1.8 # errors are those of traces that have not moved across
    between "$(figure beside.h5 rounds)" 2 3
}

@test "spots that are no Gauss-Hermite series, cosmic rays that nobody has flagged" {
    # shellcheck disable=SC2054
    local o=(-q -f --seed 3 --arm z --fibers 50 --sky-fibers 20 --snr 5:30 --wavelength 8300,8800 --shift 0.06,0.05)
    specx-sim "${o[@]}" --cosmics 30 --no-flag-cosmics --psf-output psf.fits -o hits.fits
    fits2h5 -q hits.fits psf.fits | specx-shift -q --lines none -o hits.h5
    near hits.h5 /shift/dx 0.06 0.005
    between "$(figure hits.h5 windows_rejected)" 1 40
    specx-sim "${o[@]}" --spots moffat --psf-output psf.fits -o moffat.fits
    fits2h5 -q moffat.fits psf.fits | specx-shift -q --lines none -o moffat.h5
    near moffat.h5 /shift/dx 0.06 0.008
    [ "$(values moffat.h5 /shift/flags | sort -u)" = 8 ]
}

# One fibre window in five is hit, and hits have a hundred times the light of stars: with the weights of others they bend the
# smooth functions; of seeds 4 and 8 where stars are faint, so that no window contradicts them.
@test "hits that are brighter than the stars" {
    local seed
    for seed in 3 4 5 7 8; do
        specx-sim -q -f --seed $seed --arm b --fibers 20 --sky-fibers 4 --snr 20:80 --no-flag-cosmics --shift 0.12,0 \
            --format hdf5 -o hits.h5
        specx-shift --lines none -f -o moved.h5 hits.h5 2>stderr
        run ! grep -q 'across' stderr
        near moved.h5 /shift/dx 0.12 0.005
    done
}

# Places of arc lines in three cameras over 2.5 days, laid on 50 fibres and 600 Angstrom, with specx-sim's polynomials
# through them. Columns have errors of 0.003 pixel. Rows have 0.01 by 15 sky fibres, and what a slope of each fibre leaves.
@test "measured motion of real cameras" {
    need_shared data/calib/trace-motion-b1.csv.gz data/calib/trace-motion-r1.csv.gz data/calib/trace-motion-z1.csv.gz
    local camera
    for camera in b1 r1 z1; do
        # the exposure that is farthest from the first
        zcat "$SPX_SHARED/data/calib/trace-motion-$camera.csv.gz" | awk -F, 'NR > 1 {
                k = $3 " " $4
                if (!(k in x)) { x[k] = $7; y[k] = $8; sx[k] = $9; sy[k] = $10; n++
                    low = low == "" || $4 < low ? $4 : low; high = $4 > high ? $4 : high }
                d[$1] += ($7 - x[k])^2 + ($8 - y[k])^2
                row[NR] = $0
            }
            END {
                for (i in d) if (best == "" || d[i] > d[best]) best = i
                for (i in row) { split(row[i], c, ","); if (c[1] != best) continue
                    k = c[3] " " c[4]
                    print "at", int(c[3] / 10), 8250 + 600 * (c[4] - low) / (high - low), c[7] - x[k], c[8] - y[k],
                        c[9] / sx[k] - 1, c[10] / sy[k] - 1 }
            }' | sort >points.txt
        [ "$(wc -l <points.txt)" -gt 100 ]
        specx-sim -q -f --arm z --fibers 50 --sky-fibers 15 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8250,8850 \
            --shift points.txt --truth t.h5 --psf-output psf.fits -o image.fits
        fits2h5 -q -f image.fits psf.fits -o image.h5
        specx-shift -q -f -o out.h5 image.h5
        left out.h5 dx t.h5 x 0.005
        left out.h5 dy t.h5 y 0.02
        [ "$(values out.h5 /shift/flags | sort -u)" = 0 ]
    done
}

@test "pixels that are brighter than sums can hold are the image's fault" {
    local k rows columns
    cp "$BATS_FILE_TMPDIR/image.h5" .
    read -r rows columns < <(h5dump -H -d /image/data image.h5 | sed -n 's/.*SIMPLE { ( \([0-9]*\), \([0-9]*\).*/\1 \2/p')
    for ((k = 0; k < 1000; k++)); do printf 'set /image/data %d 1e38 ' $((k * rows / 1000 * columns + columns / 2 + k % 10)); done |
        xargs h5edit image.h5
    fails_with 3 '*image.h5: the smooth fit of the shifts has no solution: look for pixels*' \
        specx-shift -q -j 2 -o x.h5 image.h5
}
