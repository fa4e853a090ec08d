# Rules of plausibility (specpipe(7), PLAUSIBILITY): each is broken by input that cannot be right, and by no input that is
# merely unusual.

load common

# A small camera, 4 fibres and 60 Angstrom: image.h5 of stars, and what it is made of.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$PATH
    simulate stars --snr 40:60 --psf-output psf-r0.fits
    fits2h5 -q stars.fits psf-r0.fits -o image.h5
    specx-sim -q --arm b --fibers 4 --wavelength 5000,5060 --psf-output psf-b0.fits -o b.fits
    fits2h5 -q psf-r0.fits -o psf-r0.h5
    fits2h5 -q psf-b0.fits -o psf-b0.h5
}

# simulate NAME [OPTION...]: NAME.fits
simulate() {
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --no-sky --wavelength 6500,6560 -o "$1.fits" -f "${@:2}"
}

grid=6500,6560,0.8

# edit EXPRESSION [FILE]: image.h5, or FILE, with its data d, ivar v, and PSF traces x changed by Python.
edit() {
    edit_h5 edited.h5 "d, v, x = f['image/data'][...], f['image/ivar'][...], f['psf/xtrace'][...]; $1
f['image/data'][...], f['image/ivar'][...], f['psf/xtrace'][...] = d, v, x" "${2:-$BATS_FILE_TMPDIR/image.h5}"
}

# warns RULE [FILE]: the extraction warns, and the frame has the flag.
warns() {
    specx-extract -w $grid -f -o frame.h5 "${2:-edited.h5}" 2>err || return
    [ "$(grep -c warning err)" -eq 1 ] || { cat err; return 1; }
    h5dump -a /frame/implausible frame.h5 | grep -F "\"$1\"" || return
    h5table --provenance frame.h5 | grep -w "implausible=$1" || return
    h5check frame.h5
}

# passes [FILE [OPTION...]]: not a word, and no flag.
passes() {
    run --separate-stderr specx-extract -w $grid -f -o frame.h5 "$@"
    if [ "$status" -ne 0 ] || [ -n "$stderr" ]; then
        echo "$stderr"
        return 1
    fi
    run ! h5dump -a /frame/implausible frame.h5
}

@test "the manual has the rules that the programs have" {
    local rule n=0
    while read -r rule; do
        n=$((n + 1))
        grep -qF ".It Cm $rule " "$SPX_BUILD/man/specpipe.7" || { echo "no rule $rule in specpipe(7)"; return 1; }
    done < <(specpipe-info --rules text | sed -n 's/^\([a-z0-9]*\) (.*/\1/p')
    [ $n -ge 12 ]
    [ "$(grep -c '^\.It Cm [a-z0-9]* Pq' "$SPX_BUILD/man/specpipe.7")" -eq $n ]
}

@test "a PSF of another camera, or of another CCD" {
    local d=$BATS_FILE_TMPDIR p
    fits2h5 -q "$d/stars.fits" -o i.h5
    for p in specx-extract specx-shift; do
        fails_with 3 '*the image is of camera r0, the PSF of camera b0*--allow camera goes on*' $p -q -o x.h5 i.h5 "$d/psf-b0.h5"
        fails_with 3 '*pixels, the PSF was made for*--allow ccd goes on*' $p -q --allow camera -o x.h5 i.h5 "$d/psf-b0.h5"
    done
    run --separate-stderr specx-extract --allow ccd --allow camera -o x.h5 i.h5 "$d/psf-b0.h5"
    [ "$status" -eq 0 ]
    [[ $stderr == *'warning: the image is of camera r0'*'warning: the image has'* ]]
    # a queue goes on with the next
    mkdir out
    run -3 specx-extract -q -o out/ i.h5 "$d/psf-b0.h5" "$d/image.h5"
    [ "$(ls out)" = image.h5 ]
}

@test "a PSF in nm" {
    local d=$BATS_FILE_TMPDIR name p range
    cp "$d/image.h5" nm.h5
    for name in xtrace ytrace coeff; do
        for range in wavemin wavemax; do
            h5edit nm.h5 attr-number /psf/$name $range "$(h5dump -a /psf/$name/$range nm.h5 | awk '/\(0\)/ { print $2 / 10 }')"
        done
    done
    for p in specx-extract specx-shift; do
        fails_with 3 '*traces end at * Angstrom: are their wavelengths in nm, or micron?*--allow unit goes on*' $p -q -o x.h5 nm.h5
    done
    run -0 --separate-stderr specx-shift --allow unit -o x.h5 nm.h5
    [[ $stderr == *'warning: the PSF'*'in nm'* ]]
}

@test "an image in digits, a fibermap whose order is another than its numbers say" {
    cp "$BATS_FILE_TMPDIR/image.h5" edited.h5
    h5edit edited.h5 attr /image/data units ADU
    fails_with 3 "*edited.h5:/image/data: has units 'ADU': a CCD image should be in electrons*" \
        specx-extract -w $grid -o f.h5 edited.h5
    cp "$BATS_FILE_TMPDIR/image.h5" edited.h5
    h5edit edited.h5 column /fibermap FIBER 3,2,1,0
    run --separate-stderr specx-extract -w $grid -o f.h5 edited.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"warning: FIBER of the fibermap falls from 3 to 2: its rows are taken for the traces"* ]]
    h5edit edited.h5 column /fibermap FIBER 5,6,6,9
    run --separate-stderr specx-extract -w $grid -f -o f.h5 edited.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"warning: FIBER of the fibermap is 6 in rows 1 and 2: rows are taken for the traces"* ]]
    h5edit edited.h5 column /fibermap FIBER 5,6,7,9
    run --separate-stderr specx-extract -w $grid -f -o f.h5 edited.h5
    [ "$status" -eq 0 ]
    [[ $stderr != *FIBER* ]]
}

@test "a PSF of other fibres than the fibermap's" {
    local d=$BATS_FILE_TMPDIR first
    # as DESI's files of one bundle
    for first in 25 1; do
        LC_ALL=C sed "s/FIBERMIN= *0/FIBERMIN= $(printf %20d $first)/g; s/FIBERMAX= *3/FIBERMAX= $(printf %20d $((first + 3)))/g" \
            <"$d/psf-r0.fits" >some.fits
        [ "$(stat -c %s some.fits)" -eq "$(stat -c %s "$d/psf-r0.fits")" ]
        fits2h5 -q some.fits -o some-$first.h5
        h52fits -q -f --as psf -o again.fits some-$first.h5
        fits2h5 -q -f again.fits -o again.h5
        h5diff some-$first.h5 again.h5 /psf/fibre
    done
    fits2h5 -q "$d/stars.fits" -o alone.h5
    cp alone.h5 mine.h5
    h5edit mine.h5 column /fibermap FIBER 25,26,27,28
    cp alone.h5 petal.h5
    h5edit petal.h5 column /fibermap FIBER 5025,5026,5027,5028
    passes mine.h5 some-25.h5
    passes petal.h5 some-25.h5
    passes alone.h5 some-1.h5 # counted from 0
    passes petal.h5 "$d/psf-r0.h5"
    run --separate-stderr specx-extract -w $grid -f -o f.h5 alone.h5 some-25.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"warning: the PSF's fibre 0 is number 25, FIBER of the fibermap is 0 there: its rows are taken"* ]]
    # the rows of these fibres among those of all
    edit_h5 all.h5 'm = f["fibermap"][:]; del f["fibermap"]; a = np.concatenate([m] * 8)
a["FIBER"] = np.arange(32); a["TARGETID"] = 100 + np.arange(32); f["fibermap"] = a' alone.h5
    passes all.h5 some-25.h5
    [ "$(h5table --csv -t /fibermap -c TARGETID frame.h5 | tail -n +2 | tr '\n' ' ')" = '125 126 127 128 ' ]
}

@test "--allow names a rule that the program refuses by" {
    fails_with 2 '*--allow chi2: no rule that specx-extract refuses by: it has camera ccd unit traces horizon pointing blank*' \
        specx-extract --allow chi2 -o x.h5 "$BATS_FILE_TMPDIR/image.h5"
    fails_with 2 '*--allow blank: no rule that specx-shift refuses by: it has camera ccd unit traces*' \
        specx-shift --allow blank -o x.h5 "$BATS_FILE_TMPDIR/image.h5"
}

@test "traces that coincide" {
    edit 'x[:] = 0; x[:, 0] = 20'
    fails_with 3 '*100 % of the PSF*s traces coincide*--allow traces goes on*' specx-extract -q -w $grid -o x.h5 edited.h5
    specx-extract -q -w $grid --allow traces -o x.h5 edited.h5
}

@test "traces and spots that cannot be right, of some fibres" {
    need_program h5dump
    specx-sim -q --arm r --fibers 9 --bundles 3x3 --sky-fibers 2 --no-sky --wavelength 6500,6560 --snr 40:60 --psf-output p.fits -o i.fits
    fits2h5 -q i.fits p.fits -o right.h5
    # with the traces x and y and the coefficients c of the spots changed
    edit() {
        edit_h5 edited.h5 "p = f['psf']; x, y, c = p['xtrace'][...], p['ytrace'][...], p['coeff'][...]; $1
p['xtrace'][...], p['ytrace'][...], p['coeff'][...] = x, y, c" right.h5
    }
    masked() { h5dump -y -w 1 -d /frame/mask f.h5 | awk -v bins=76 '/^ *[0-9]+,? *$/ { n += int($1 / 512) % 2; if (++k % bins == 0) { if (n == bins) printf "%s%d", some++ ? " " : "", k / bins - 1; n = 0 } }'; }
    edit ""
    run -0 --separate-stderr specx-extract -w $grid -o f.h5 edited.h5
    [ -z "$stderr" ]
    local change fibres text
    # the first is what is left of a bundle that the fit has lost; a trace is masked wherever it is
    while IFS=\; read -r change fibres text; do
        edit "$change"
        run -0 --separate-stderr specx-extract -w $grid -f -o f.h5 edited.h5
        [[ $stderr == *warning:*"$text"* ]] || { echo "$change: $stderr"; return 1; }
        [ "$(masked)" = "$fibres" ] || { echo "$change: $(masked)"; return 1; }
        h5dump -a /frame/implausible f.h5 | grep -w fibres
        h5check f.h5
        # status 70 and 3 they were, or not a word
        run --separate-stderr specx-shift -w 6500,6560,0.5 --lines none --psf-only -f -o s.h5 edited.h5
        [ "$status" -eq 0 ] || { echo "$change: $stderr"; return 1; }
        [[ $stderr == *warning:*"$text"* ]]
        h5dump -a /shift/implausible s.h5 | grep -w fibres
    done <<'END'
c[:2, 3:6] = 0;3 4 5;3 of the PSF's 9 traces (3, 4, 5) have no spots
c[2, 3:6] = 0;3 4 5;3 of the PSF's 9 traces (3, 4, 5) have no spots
x[3:6] = 0;3 4 5;3 of the PSF's 9 traces (3, 4, 5) coincide with another
x[7] = x[4];4 7;2 of the PSF's 9 traces (4, 7) coincide with another
x[5, 0] -= 400;5;1 of the PSF's 9 traces (5) lie nowhere on the CCD
y[5] = 0;5;1 of the PSF's 9 traces (5) lie nowhere on the CCD, or in one row
y[5, 0] += 40;5;1 of the PSF's 9 traces (5) lie far from where their neighbours do
y[0, 0] += 20;0;1 of the PSF's 9 traces (0) lie far from where their neighbours do
y[8, 0] -= 20;8;1 of the PSF's 9 traces (8) lie far from where their neighbours do
x[0, 0] += 30;0;1 of the PSF's 9 traces (0) lie far from where their neighbours do
x[[4, 5]], y[[4, 5]], c[:, [4, 5]] = x[[5, 4]], y[[5, 4]], c[:, [5, 4]];4 5;2 of the PSF's 9 traces (4, 5) have changed places
x[[0, 1]] = x[[1, 0]];0 1;2 of the PSF's 9 traces (0, 1) have changed places
x[[2, 7]] = x[[7, 2]];2 7;2 of the PSF's 9 traces (2, 7) have changed places
END
    # slits whose fibres are staggered, or whose blocks are, are right, and fibres that are numbered in no order
    for change in 'y[::2, 0] += 15' 'y[3:6, 0] += 15' 'x[:] = x[::-1].copy()' 'x[:] = x[[8, 0, 7, 1, 3, 6, 2, 4, 5]]'; do
        edit "$change"
        run --separate-stderr specx-extract -w $grid -f -o f.h5 edited.h5
        [[ $stderr != *"traces"*"lie"* ]] || { echo "$change: $stderr"; return 1; }
    done
    edit 'c[0] = 0'
    fails_with 3 '*no fibre has spots: GHSIGX, GHSIGY or GH-0-0 are 0*' specx-extract -w $grid -o x.h5 edited.h5
}

@test "a PSF of DESI whose fit failed in a bundle" {
    need_program /usr/bin/python3
    specx-sim -q --arm r --fibers 9 --bundles 3x3 --no-sky --wavelength 6500,6560 --psf-output p.fits -o i.fits
    # TAILINDE of fibres 3 to 5 becomes specex's STATUS, big-endian doubles
    /usr/bin/python3 - <<'END'
import struct
data = bytearray(open("p.fits", "rb").read())
at = data.rindex(b"TAILINDE")
data[at:at + 8] = b"STATUS  "
first = at + 8
for fibre in range(9): # of degree 2
    struct.pack_into(">3d", data, first + 24 * fibre, fibre in (3, 4, 5), 0, 0)
open("p.fits", "wb").write(data)
END
    run -0 --separate-stderr fits2h5 p.fits -o p.h5
    [[ $stderr == *'STATUS says that the fit of 3 of 9 fibres, from 3 on, has failed: their spots and traces may be wrong'* ]]
}

@test "an image without signal" {
    edit 'd[:] = 0'
    fails_with 3 '*the image has no signal*--allow blank goes on*' specx-extract -q -w $grid -o x.h5 edited.h5
    specx-extract -q -w $grid --allow blank -o x.h5 edited.h5
    h5dump -a /frame/implausible x.h5 | grep -F '"blank"'
}

@test "variances that cannot be, and traces that have moved" {
    local change
    for change in 'v *= 1e10' 'v = np.where(v > 0, 1 / np.maximum(v, 1e-30), 0)' 'v = np.sqrt(v)' 'v[:] = 1e30' \
        'd = np.roll(d, 3, 1)' 'd = np.roll(d, 1, 1)' 'd *= 0.5' 'v *= 0.4' 'd[:] = 1e30'; do
        edit "$change"
        warns chi2 || { echo "$change"; return 1; }
    done
}

@test "a variance that is wrong by a constant, and a PSF that was not shifted" {
    local factor
    specx-sim -q --arm r --fibers 12 --sky-fibers 4 --wavelength 6200,6500 --shift 0.06,-0.04 --throughput 0.1 \
        --snr 40:60 --psf-output psf.fits -o stars.fits
    specx-sim -q --arm r --fibers 12 --wavelength 6200,6500 --shift 0.06,-0.04 --throughput 0.1 --flat -o lamp.fits
    fits2h5 -q stars.fits psf.fits -o image.h5
    fits2h5 -q lamp.fits psf.fits | specx-extract -q -w 6210,6490,0.8 | specx-flat -q -o flat.h5
    for factor in 1 2 0.5 0.67; do
        edit_h5 edited.h5 "f['image/ivar'][...] *= $factor" image.h5
        specx-extract -q -w 6210,6490,0.8 -f -o frame.h5 edited.h5
        run --separate-stderr specx-sky --flat flat.h5 -f -o sky.h5 frame.h5
        [ "$status" -eq 0 ]
        case $factor in
        1) [[ $stderr != *warning* ]] ;;
        2) [[ $stderr == *'warning: chi2 of the sky fibres is '[12].*': the variance of the frame is too small, '* ]] ;;
        *) [[ $stderr == *'warning: chi2 of the sky fibres is 0.'[4-7]*', off lines: the variance of the frame is too large'* ]] ;;
        esac
        [ $factor = 1 ] || h5dump -a /frame/implausible sky.h5 | grep -w variance
        h5check sky.h5
        run --separate-stderr specx-shift --psf-only -f -o moved.h5 edited.h5
        [ "$status" -eq 0 ]
        case $factor in
        0.*)
            [[ $stderr == *'warning: chi2 of the image is 0.'[56]*', and should be above 0.8: its variance is too large'* ]]
            h5dump -a /shift/implausible moved.h5 | grep -w variance
            ;;
        *) [[ $stderr != *warning* ]] ;;
        esac
    done
}

@test "a gain of 2 that was left out of image and variance" {
    edit 'd /= 2; v[:] = np.where(v > 0, 1 / (np.maximum(d, 0) + 3 ** 2), 0)'
    run -0 --separate-stderr specx-extract -w $grid -f -o frame.h5 edited.h5
    [[ $stderr == *'should be above 0.4: the variance of the image is too large, or a gain was left out of it'* ]]
    h5dump -a /frame/implausible frame.h5 | grep -F '"chi2"'
}

@test "one trace that lies beside its light" {
    local how off
    specx-sim -q --arm r --fibers 10 --wavelength 6200,6400 --snr 150:200 --cosmics 0 --psf-output psf.fits -o stars.fits
    fits2h5 -q stars.fits psf.fits -o image.h5
    for off in 1 3 -2; do
        edit_h5 off.h5 "f['psf/xtrace'][5, 0] += $off" image.h5
        for how in '--reject 5' '--reject 0'; do
            # shellcheck disable=SC2086
            run --separate-stderr specx-extract -w 6210,6390,0.8 $how -f -o frame.h5 off.h5
            [ "$status" -eq 0 ]
            [[ $stderr == *'warning: '*' of the spectra (5'*') fit the image far worse than the others: '* ]]
            h5dump -a /frame/implausible frame.h5 | grep -w misfit
        done
    done
    # one star that is a thousand times brighter than others, and one that has nothing
    specx-sim -q -f --arm r --fibers 10 --wavelength 6200,6400 --snr 1:1000 --sky-fibers 2 --psf-output psf.fits -o stars.fits
    fits2h5 -q -f stars.fits psf.fits -o image.h5
    specx-extract -w 6210,6390,0.8 --reject 5 -f -o frame.h5 image.h5 2>err
    [ ! -s err ]
    # spots of another shape, bright and faint
    specx-sim -q -f --arm r --spots disc --fibers 10 --wavelength 6200,6400 --snr 5:400 --cosmics 0 --psf-output psf.fits -o stars.fits
    fits2h5 -q -f stars.fits psf.fits -o image.h5
    run --separate-stderr specx-extract -w 6210,6390,0.8 -f -o frame.h5 image.h5
    [[ $stderr != *'worse than the others'* ]]
}

@test "traces that have moved, taken for cosmic rays" {
    local how
    specx-sim -q --arm r --fibers 8 --wavelength 6200,6400 --snr 60:90 --cosmics 0 --shift 0.5,0.5 -o moved.fits
    specx-sim -q --arm r --fibers 8 --wavelength 6200,6400 --snr 60:90 --no-flag-cosmics --psf-output psf.fits -o right.fits
    for how in right moved; do
        fits2h5 -q $how.fits psf.fits | specx-extract -w 6210,6390,0.8 --reject 5 --variance model -f -o frame.h5 2>$how
    done
    grep -q '% of the bins are masked as hit by cosmic rays' moved
    run ! grep -q 'hit by cosmic' right
    h5dump -a /frame/implausible frame.h5 | grep -qw hits
}

@test "bins far wider than the spots" {
    specx-extract -w 6500,6560,20 -o wide.h5 "$BATS_FILE_TMPDIR/image.h5" 2>err
    grep -q 'the median of chi2pix is .*bins are wider than spots' err
}

@test "bundles that share light" {
    local pitch
    need_program h5dump
    # fibres of one block, 0.019 and 0.0023 of whose light lies in the next one's
    for pitch in 4 5; do
        specx-sim -q --arm r --fibers 12 --bundles 12x1 --camera pitch=$pitch --wavelength 6500,6560 --snr 5:100 \
            --psf-output block.fits -f -o x.fits
        fits2h5 -q x.fits block.fits -f -o block.h5
        passes block.h5 --bundle-size 12
        specx-extract -w $grid --bundle-size 6 -f -o frame.h5 block.h5 2>err
        grep -q 'fibres 5 and 6 of different bundles share .*--bundle-size, or right ones in /psf/bundle' err
        h5dump -a /frame/implausible frame.h5 | grep -F '"bundles' # and chi2, of the nearer ones
        h5check frame.h5
        specx-shift -w $grid --bundle-size 6 --psf-only -f -o shift.h5 block.h5 2>err
        grep -q 'fibres 5 and 6 of different bundles share .*--bundle-size, or right ones in /psf/bundle' err
        h5dump -a /shift/implausible shift.h5 | grep -F '"bundles"'
        h5table --provenance shift.h5 | grep -w implausible=bundles
        h5check shift.h5
        specx-shift -w $grid --bundle-size 12 --psf-only -f -o shift.h5 block.h5 2>err
        run ! grep bundles err
        run ! h5dump -a /shift/implausible shift.h5
    done
    # nor of bundles that are apart, however near their fibres are
    specx-sim -q --arm r --fibers 12 --bundles 6x2 --camera pitch=4,gap=8 --wavelength 6500,6560 --psf-output two.fits -f -o x.fits
    fits2h5 -q x.fits two.fits -o two.h5
    passes two.h5 --bundle-size 6
}

@test "bins too wide for the lines of the sky" {
    local bin
    need_program h5dump
    # sigma of lines is 0.62 Angstrom: 0.8 are 1.3 of it, 1.0 are 1.6
    specx-sim -q --arm r --fibers 12 --sky-fibers 6 --wavelength 6240,6400 -o wide.h5
    for bin in 0.8 1.0; do
        specx-extract -q -w 6240,6400,$bin -f -o frame.h5 wide.h5
        specx-sky --keep-sky -f -o sky.h5 frame.h5 2>err
        if [ $bin = 0.8 ]; then
            run ! grep 'sigma of a line' err
            run ! h5dump -a /frame/implausible sky.h5
        else
            grep -q 'bins are 1\.[56].* of the sigma of a line .*--wavelength' err
            h5dump -a /frame/implausible sky.h5 | grep -F '"bins"'
            h5table --provenance sky.h5 | grep -w implausible=bins
            # once more: said once
            specx-sky -q -f -o again.h5 sky.h5
            h5dump -a /frame/implausible again.h5 | grep -F '"bins"'
            h5check sky.h5 again.h5
        fi
    done
}

@test "light of the wrong sign" {
    edit 'd *= -1'
    warns sign
}

@test "lines that lie elsewhere than the PSF has them" {
    local how p
    need_program h5dump
    specx-sim -q --arm z --fibers 8 --sky-fibers 4 --wavelength 8250,8600 --shift 0.05,-0.3 --psf-output psf.fits -o right.fits
    fits2h5 -q right.fits psf.fits -o right.h5
    edit 'd, v = np.roll(d, 4, 0), np.roll(v, 4, 0)' right.h5
    mv edited.h5 rolled.h5
    edit 'd, v = d[::-1], v[::-1]' right.h5
    mv edited.h5 flipped.h5
    for how in right rolled flipped; do
        specx-shift --psf-only -o $how-psf.h5 $how.h5 2>$how
        specx-extract -q -w 8260,8590,0.8 -o $how-frame.h5 $how.h5
        specx-sky -o $how-sky.h5 $how-frame.h5 2>>$how
    done
    cat rolled
    run ! grep 'lines lie' right
    grep -q 'specx-shift: warning: lines lie 4\.0 rows, 2\.[0-9]* Angstrom, from where' rolled
    grep -q 'specx-sky: warning: lines lie [0-9.]* bins, 2\.[0-9]* Angstrom, from where' rolled
    grep -q 'specx-shift: warning: lines lie in the order of an image that is upside down' flipped
    for p in rolled-psf.h5:shift rolled-sky.h5:sky flipped-psf.h5:shift; do
        h5dump -a "/${p#*:}/implausible" "${p%:*}" | grep -F '"lines"'
        h5check "${p%:*}"
    done
    run ! h5dump -a /shift/implausible right-psf.h5
    run ! h5dump -a /sky/implausible right-sky.h5
}

@test "a list of lines in nm, or in air" {
    specx-sim -q --arm r --fibers 8 --arc Ne --wavelength 6200,6750 --psf-output psf.fits -o i.fits
    fits2h5 -q i.fits psf.fits -o i.h5
    # of neon, NIST; n - 1 of air changes by 4e-7 between them, 0.003 Angstrom
    printf '%s\n' 6217.281 6266.495 6304.789 6334.428 6382.991 6402.248 6506.528 6532.882 6598.953 6678.277 6717.043 >air.txt
    awk '{ print 1.0002764 * $1 }' air.txt >vacuum.txt
    awk '{ print $1 / 10 }' vacuum.txt >nm.txt
    run -0 --separate-stderr specx-shift --lamp --psf-only --lines vacuum.txt -o a.h5 i.h5
    [[ $stderr == *'zero point '*' by '* && $stderr != *warning:* ]]
    run -0 --separate-stderr specx-shift --lamp --psf-only --lines nm.txt -o b.h5 i.h5
    [[ $stderr == *'warning: nm.txt: none of its '*' lines lies between '*'are they in nm'* ]]
    run -0 --separate-stderr specx-shift --lamp --psf-only --lines air.txt -o c.h5 i.h5
    [[ $stderr == *'warning: lines lie '*', as a list of lines in air makes it: '* ]]
}

@test "a library whose lines are in air, of one in vacuum" {
    local way
    need_program h5dump
    specx-sim -q --library stars --wavelength 3900,6700 --axis teff=5000,6000,7000 --axis logg=4 --axis feh=-1,0 --axis alpha=0
    for way in vacuum air; do
        fits2h5 -q "--$way" stars -o $way.h5
        rvs-template --setup r:6000:6400:0.4:FWHM=1.5 -o $way-t.h5 $way.h5 2>err
        h5check $way-t.h5
        if [ $way = vacuum ]; then
            run ! grep 'strong lines' err
            run ! h5dump -a /templates/implausible $way-t.h5
        else
            grep -q 'warning: air.h5:/library/wavelength: is in air, and [0-9]* strong lines lie where they are in vacuum, .*fits2h5 --vacuum' err
            h5dump -a /templates/implausible $way-t.h5 | grep -F '"medium"'
        fi
    done
}

@test "real libraries say in which medium they are" {
    need_shared data/rv/kurucz_stds_v5.fit data/rv/da_white_dwarfs_1d_nlte.fits.gz data/rv/phoenix_subset
    local one file right setup
    # the first is in vacuum, the others are in air
    for one in kurucz_stds_v5.fit:vacuum:r:5300:5900:1:FWHM=6 da_white_dwarfs_1d_nlte.fits.gz:air:b:4300:5900:4:FWHM=8 \
        phoenix_subset:air:r:5200:5800:0.4:FWHM=1; do
        IFS=: read -r file right setup <<<"$one"
        for way in vacuum air; do
            fits2h5 -q -f "--$way" "$SPX_SHARED/data/rv/$file" -o l.h5
            rvs-template -f --setup "$setup" -o t.h5 l.h5 2>err
            if [ $way = "$right" ]; then
                run ! grep 'strong lines' err
            else
                grep -q 'strong lines lie' err
            fi
        done
    done
}

@test "ends that no light reaches are masked" {
    local d=$BATS_FILE_TMPDIR
    need_program h5dump
    specx-extract -q -w 6510,6550,0.8 -o light.h5 "$d/image.h5"
    specx-sim -q --arm r --wavelength 6500,6560 --cosmics 0 --bad-columns 0 -o ends.h5 light.h5
    run --separate-stderr specx-extract -o ends-frame.h5 ends.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *'no light reaches the first '*' and last '*': masked as LOWFLAT; --wavelength 65'* ]]
    # 6440 to 6620 Angstrom in bins of 0.8: light from 6510 to 6550, its edge as wide as the spots
    h5dump -A 0 -y -w 1 -d /frame/mask -s 0,0 -c 1,226 ends-frame.h5 | awk '/^ *[0-9]+,?$/ { if ($1 % 16 < 8) n++ } END { exit n < 44 || n > 52 }'
    # the range that the warning names has no unlit ends
    run --separate-stderr specx-extract -w "$(sed -n 's/.*--wavelength \([0-9.,]*\).*/\1/p' <<<"$stderr")" -f -o again.h5 ends.h5
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
}

# raw NAME KEY=VALUE,... [OPTION...]: NAME.h5, a raw exposure of this camera.
raw() {
    specx-sim -q --arm r --fibers 4 --wavelength 6500,6560 --instrument-seed 7 --format hdf5 -f -o "$1.h5" --raw "$2" "${@:3}"
}

# preproc_flags RULE BLOCK [OPTION...]: specx-preproc warns, and flags BLOCK of its product; with RULE none neither.
preproc_flags() {
    local flagged=0
    run -0 --separate-stderr specx-preproc -f -o out.h5 "${@:3}"
    echo "$stderr"
    h5dump -a "/$2/implausible" out.h5 >flag 2>/dev/null && flagged=1
    h5check out.h5 || return
    if [ "$1" = none ]; then
        [[ $flagged == 0 && $stderr != *warning* ]]
    else
        [[ $stderr == *warning* ]] && grep -F "\"$1\"" flag && h5table --provenance out.h5 | grep -w "implausible=$1"
    fi
}

@test "a gain that the overscan's noise contradicts" {
    local k
    for k in amps=1,gain-error=3 amps=4,gain-error=0.3 amps=2,pickup=12; do
        raw x $k
        preproc_flags readnoise image x.h5 || { echo "$k"; return 1; }
    done
    # two columns of overscan, a noisy or a quiet amplifier, a level that moves, coarse digits, and a gain that is a little off
    for k in amps=4,overscan=2 'amps=1 --readnoise 30' 'amps=1,gain=0.3 --readnoise 0.8' amps=2,gradient=30,wander=3 \
        amps=2,gain=4 amps=2,gain-error=1.3; do
        # words on purpose
        # shellcheck disable=SC2086
        raw x $k
        preproc_flags none image x.h5 || { echo "$k"; return 1; }
    done
}

@test "a gain that the photons of a lamp contradict" {
    local k i lamp
    for k in 1.6 0.5; do
        for i in 1 2 3; do raw lamp-$i amps=2,gain-error=$k,uniform=20000 --noise-seed $i; done
        preproc_flags gain master --combine flat lamp-?.h5 || { echo "$k"; return 1; }
    done
    # lamps of other levels, without a word: faint, and one that fades
    for lamp in '2000 2000 2000' '20000 18000 16000' '40000 40000 40000'; do
        i=0
        for k in $lamp; do raw lamp-$((i += 1)) amps=2,uniform="$k" --noise-seed $i; done
        preproc_flags none master --combine flat lamp-?.h5 || { echo "$lamp"; return 1; }
    done
}

@test "unusual but right images pass" {
    local d=$BATS_FILE_TMPDIR
    passes "$d/image.h5"
    passes "$d/image.h5" --spectra 1:2
    passes "$d/image.h5" --reject 5
    passes "$d/image.h5" --method patch
    edit 'd[:180] = np.nan'
    run -0 --separate-stderr specx-extract -w $grid -o half.h5 edited.h5
    [[ $stderr != *warning* ]]
    edit 'd *= 1e-17; v *= 1e34'
    passes edited.h5
    edit 'v *= 0.6'
    passes edited.h5
    edit 'v *= 1.6'
    passes edited.h5
}

@test "faint and bright stars, sky and lamps pass" {
    local s d=$BATS_FILE_TMPDIR
    for s in '--snr 0.5' '--snr 1000 --fullwell 1e9' '--sky-fibers 4 --no-sky' '--flat' '--flat --lamp-level 1e5' \
        '--arc all' '--arc all --lamp-level 1e6' '--snr 40 --ivar data' '--snr 40 --shift 0.03,0.03'; do
        # words on purpose
        # shellcheck disable=SC2086
        simulate this $s
        fits2h5 -q this.fits "$d/psf-r0.fits" -f -o this.h5
        passes this.h5 || { echo "$s"; return 1; }
    done
}

@test "a real PSF, and an image through it" {
    need_shared data/extract/{preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local s=$SPX_SHARED/data/extract
    fits2h5 -q "$s/preproc-r0-sim.fits.gz" "$s/psf-r0-00067784.fits" -o real.h5
    run --separate-stderr specx-extract -s 0:25 -w 6000,6100,0.8 -o frame.h5 real.h5
    [ "$status" -eq 0 ]
    [[ $stderr != *warning* ]]
    # bundles of all 500 fibres are apart, DESI's and BOSS's
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    specx-sim -q --psf "$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits" -o boss.fits
    fits2h5 -q boss.fits "$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits" -o boss.h5
    for s in real.h5 "boss.h5 --bundle-size 20"; do
        # words on purpose
        # shellcheck disable=SC2086
        run --separate-stderr specx-extract -w 6500,6510,0.8 -f -o frame.h5 $s
        [[ $stderr != *bundles* ]]
    done
}
