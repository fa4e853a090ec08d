# specx-preproc: raw exposures of many layouts against the electrons that were put in, overscans that are not as they
# should be, real exposures, masters, queues and pipes, and input that it has to refuse. The parser of layouts:
# tests/unit/test_raw_layout.c.

load common

# raw NAME KEY=VALUE,... [OPTION...]: simulates NAME.fits, a raw exposure of 12 fibres without hits, NAME-truth.h5 and
# psf.fits.
raw() {
    specx-sim -q --arm r --fibers 12 --wavelength 6200,6400 --cosmics 0 --bad-columns 0 --psf-output psf.fits \
        --truth "$1-truth.h5" -f -o "$1.fits" --raw "$2" "${@:3}"
}

# preproc NAME [OPTION...]: makes NAME.h5 of NAME.fits.
preproc() {
    fits2h5 -q "$1.fits" | specx-preproc -q -f -o "$1.h5" "${@:2}"
}

# column FILE NAME: of /image/amplifiers or /master/amplifiers, an amplifier a line.
column() {
    h5table --csv -c "$2" -t "${3:-/image/amplifiers}" "$1" | tail -n +2
}

setup_file() {
    example_data
    cd "$BATS_FILE_TMPDIR" || return
    raw one amps=4
    preproc one
}

# Errors of means and widths are those of the number of pixels, some 30000; raw_truth allows 4 of them, and with 0.02 and
# 0.06 of the noise 2 errors of the level that all pixels of an amplifier share: 3 / sqrt(32 x 550) and 3 / sqrt(20 x 85)
# electrons. Digits of 1.2 electrons are part of the noise.
@test "layouts: the electrons that were put in, with errors that are right" {
    local k keys=(amps=1 'amps=2,prescan=0,rows=6' amps=4 'amps=4,extensions=1'
        'amps=4,extensions=1,flipped=1,binning=2' 'amps=2,extensions=1,flipped=1,rows=4' 'amps=1,overscan=0,rows=20'
        'amps=4,overscan=3')
    for k in "${keys[@]}"; do
        raw x "$k"
        preproc x
        h5check x.h5 x-truth.h5
        echo "$k"
        raw_truth x.h5 x-truth.h5 0 "$([[ $k == *rows=20 ]] && echo 0.06 || echo 0.02)" 0
    done
}

@test "the same exposure gives the same image, however it was stored" {
    local k
    raw a amps=4
    preproc a
    for k in amps=4,extensions=1 amps=4,extensions=1,flipped=1 amps=4,extensions=1,flipped=1,binning=2 \
        amps=4,binning=3; do
        raw b "$k"
        preproc b
        h5diff a.h5 b.h5 /image/data
        h5diff a.h5 b.h5 /image/ivar
        h5diff a.h5 b.h5 /image/readnoise
    done
}

@test "levels that vary, a hum, charge that trails into the overscan" {
    raw x amps=2,gradient=30
    preproc x
    raw_truth x.h5 x-truth.h5 0 0.02 0
    [ "$(column x.h5 OVERSCAN_MODEL | sort -u)" = smooth ]
    # one level for all rows: 15 ADU off at both ends, and the errors say it
    preproc x --overscan constant
    run -1 raw_truth x.h5 x-truth.h5 0 0.02 0
    awk -v n="$(column x.h5 OVERSCAN_ERR | head -1)" 'BEGIN { exit !(n > 8 && n < 13) }'
    raw x amps=2,wander=3
    preproc x
    raw_truth x.h5 x-truth.h5 0 0.02 0
    [ "$(column x.h5 OVERSCAN_MODEL | sort -u)" = line ]
    # a hum is noise of the pixels, too
    raw x amps=2,pickup=3
    preproc x
    raw_truth x.h5 x-truth.h5 0 0.02 0.02
    # 60 ADU in the first column; the level would be 4 ADU too high with it
    raw x amps=2,trail=0.003,uniform=20000
    preproc x
    raw_truth x.h5 x-truth.h5 0 0.02 0
    [ "$(column x.h5 OVERSCAN_DROPPED | head -1)" -ge 4 ]
    raw x amps=2
    preproc x
    [ "$(column x.h5 OVERSCAN_DROPPED | sort -u)" = 0 ]
}

# 4 amplifiers x 1100 rows x 3 columns and more: the error is printed with it.
@test "read noise of the overscan, without bias for few columns" {
    local n
    for n in 2 3 5 40; do
        raw x amps=4,overscan=$n,gain=0.5
        preproc x
        paste -d, <(column x.h5 READNOISE) <(column x.h5 READNOISE_ERR) | awk -F , -v n=$n '
            { p = ($1 - sqrt(9 + 0.25 / 12)) / $2; sum += p; if (p > 4 || p < -4) bad++ }
            END { print n, sum / NR; exit bad || sum / NR > 2 || sum / NR < -2 }'
    done
}

@test "a raw exposure through a pipe to spectra: pulls 1" {
    local d
    raw x amps=4 --fibers 25
    fits2h5 -q x.fits psf.fits | specx-preproc -q |
        specx-extract -q --variance model --wavelength 6210,6390,0.8 -o frame.h5
    h5check frame.h5
    frame_truth --mean 0.05 --sd 0.05 frame.h5 x-truth.h5
    # weights from the image, of neighbouring pixels; the PSF comes later
    fits2h5 -q x.fits | specx-preproc -q | specx-extract -q --wavelength 6210,6390,0.8 - <(fits2h5 -q psf.fits) -o data.h5
    frame_truth --mean 0.1 --sd 0.05 data.h5 x-truth.h5
}

@test "a PSF beside the raw exposure is handed on, and refused where no program reads it" {
    raw x amps=2
    fits2h5 -q x.fits psf.fits -o good.h5
    specx-preproc -q good.h5 -o x.h5
    h5diff good.h5 x.h5 /psf
    local how
    for how in 'fill /psf/coeff nan' 'delete /psf/xtrace' 'shape /psf/ytrace 3,2'; do
        cp good.h5 bad.h5
        # shellcheck disable=SC2086
        h5edit bad.h5 $how
        fails_with 3 '*bad.h5*/psf*' specx-preproc -q -f -o x.h5 bad.h5
    done
    for how in xtrace ytrace coeff; do
        cp good.h5 bad.h5
        h5edit bad.h5 attr "/psf/$how" units mm
        fails_with 3 "*bad.h5:/psf/$how: has units 'mm': should be*" specx-preproc -q -f -o x.h5 bad.h5
    done
    for how in nan -1; do
        cp good.h5 bad.h5
        h5edit bad.h5 attr-number /psf psferr "$how"
        fails_with 3 "*bad.h5:/psf: attribute psferr is $how*" specx-preproc -q -f -o x.h5 bad.h5
    done
}

@test "a PSF beside the raw exposure whose fibres are not those of the fibermap" {
    raw x amps=2
    fits2h5 -q x.fits psf.fits -o pair.h5
    # of 12 rows those of fibres 0 ... 3 and 8 ... 11 would be the same of 8
    specx-sim -q --arm r --fibers 8 --wavelength 6200,6400 --format hdf5 -o eight.h5
    fits2h5 -q x.fits -o bad.h5
    h5copy -i eight.h5 -o bad.h5 -s /psf -d /psf
    fails_with 3 '*fibermap: rows 0 and 8 both belong to fibre 0 of the PSF*' specx-preproc -q -f -o y.h5 bad.h5
    # 11 of 12 fibres
    specx-sim -q --arm r --fibers 11 --wavelength 6200,6400 --cosmics 0 -o eleven.fits --raw amps=2
    fits2h5 -q eleven.fits -o eleven.h5
    h5copy -i pair.h5 -o eleven.h5 -s /psf -d /psf
    run --separate-stderr specx-preproc -o y.h5 eleven.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"the fibermap has no row for 1 of the PSF's 12 fibres"* ]]
    # counted from 1
    h5edit eleven.h5 column /fibermap FIBER 1,2,3,4,5,6,8,9,10,11,12
    fails_with 3 '*fibermap: FIBER 1 and 12 are not of one spectrograph of 12 fibres*' specx-preproc -q -f -o y.h5 eleven.h5
}

@test "gain: a wrong one is noticed by the read noise, a file corrects it" {
    raw x amps=2,gain-error=3
    run -0 specx-preproc -f -o x.h5 <(fits2h5 -q x.fits)
    [[ $output == *'warning: amplifier A: its overscan has a noise of 9.'*'is the gain right?'* ]]
    h5dump -a /image/implausible x.h5 | grep -q readnoise
    printf 'amplifier A gain=1.2\namplifier B gain=1.236\n' >layout
    run -0 specx-preproc --layout layout -f -o x.h5 <(fits2h5 -q x.fits)
    [[ $output != *warning* ]]
    raw_truth x.h5 x-truth.h5 0 0.02 0
    run h5dump -a /image/implausible x.h5
    [[ $output != *readnoise* ]]
}

@test "no keywords: the layout is a file's" {
    raw x amps=2,keywords=0
    run -3 specx-preproc -o x.h5 <(fits2h5 -q x.fits)
    [[ $output == *'no raw exposure'*'--as raw'* ]]
    fits2h5 -q --as raw x.fits -o raw.h5
    fails_with 3 '*no keyword (DATASEC, TRIMSEC)*--layout*' specx-preproc raw.h5 -o x.h5
    local nx
    nx=$(h5ls raw.h5/raw/image00/data | sed 's/.*, \([0-9]*\)}.*/\1/')
    local half=$((nx / 2)) ny
    ny=$(h5ls raw.h5/raw/image00/data | sed 's/.*{\([0-9]*\),.*/\1/')
    cat >layout <<END
amplifier A data=[5:$((half - 32)),1:$ny] bias=[$((half - 31)):$half,1:$ny] gain=GAINA
amplifier B data=[$((half + 33)):$((nx - 4)),1:$ny] bias=[$((half + 1)):$((half + 32)),1:$ny] gain=GAINB
END
    specx-preproc -q --layout layout raw.h5 -o x.h5
    raw_truth x.h5 x-truth.h5 0 0.02 0
}

@test "cross-talk and linearity" {
    raw x amps=4,crosstalk=0.003
    preproc x
    run -1 raw_truth x.h5 x-truth.h5 0 0.02 0
    local a b
    for a in A B C D; do for b in A B C D; do [ $a = $b ] || echo "crosstalk $a $b 0.003"; done; done >layout
    preproc x --layout layout
    raw_truth x.h5 x-truth.h5 0 0.02 0
    # stored in the order of reading, names of the extensions
    raw x amps=4,crosstalk=0.003,extensions=1,flipped=1
    sed 's/\([ABCD]\)/AMP\1/g' layout >names
    preproc x --layout names
    raw_truth x.h5 x-truth.h5 0 0.02 0
    raw x amps=2,nonlinear=0.000004,uniform=30000
    preproc x
    run -1 raw_truth x.h5 x-truth.h5 0 0.02 0
    printf 'amplifier A linearity=4e-6\namplifier B linearity=4e-6\n' >layout
    preproc x --layout layout
    raw_truth x.h5 x-truth.h5 0 0.02 0
}

@test "saturated and bad pixels" {
    raw x amps=2,gain=0.1,uniform=5000
    preproc x --grow 0
    raw_truth x.h5 x-truth.h5 0 0.02 0
    # every pixel of 6000 electrons is full: 60000 ADU and 1000 of the bias are not, 64600 are
    raw x amps=2,gain=0.1,uniform=7000
    fails_with 3 '*all * pixels are saturated (65535 ADU*' specx-preproc <(fits2h5 -q x.fits) -o y.h5
    # hits of 25000 electrons and more
    raw x amps=2,gain=0.3 --saturated 2 --fullwell 25000
    preproc x --grow 0
    [ "$(raw_truth x.h5 x-truth.h5 0 0 0 | awk '/masked/ { print $4 }')" -eq $((2 * 8 * 24)) ]
    preproc x --grow 2
    [ "$(raw_truth x.h5 x-truth.h5 0 0 0 | awk '/masked/ { print $4 }')" -eq $((2 * 8 * 28)) ]
    [ "$(column x.h5 NSATURATED | awk '{ n += $1 } END { print n }')" -eq $((2 * 8 * 28)) ]
    printf '[1:3,5:5]\n[10:10,1:20] # a column\n' >bad
    preproc x --bad bad
    [ "$(raw_truth x.h5 x-truth.h5 0 0 0 | awk '/masked/ { print $2 }')" -eq 23 ]
    echo '[1:5000,5:5]' >bad
    fails_with 3 '*bad: \[1:5000,5:5\] lies outside*' specx-preproc --bad bad <(fits2h5 -q x.fits) -o y.h5
    echo '[1:5' >bad
    fails_with 3 '*bad: line 1: *is no section*' specx-preproc --bad bad <(fits2h5 -q x.fits) -o y.h5
}

@test "a full well below the largest digit is found, and no other light is taken for one" {
    local kind
    # 42 errors off and not flagged, where pixels that pile up were not seen
    raw x amps=2 --no-sky --snr 30:200 --fullwell 1500
    fits2h5 -q x.fits psf.fits -o raw.h5
    run --separate-stderr specx-preproc -o x.h5 raw.h5
    [ "$status" -eq 0 ]
    [ "$(grep -c 'pixels pile up from 22[2-4]. ADU on' <<<"$stderr")" -eq 2 ]
    column x.h5 SATURATION | awk '!($1 > 2220 && $1 < 2250) { exit bad = 1 } END { exit bad || NR != 2 }'
    specx-extract -q -w 6200,6400,0.8 -o f.h5 x.h5
    frame_truth f.h5 x-truth.h5 >pulls
    cat pulls
    awk '$1 == "clean" { exit !($2 > 500 && $10 < 1.1 && $NF < 5) }' pulls
    # half of the rows hold less: their values lie among those of the others
    edit_h5 two.h5 'd = f["raw/image00/data"]; a = d[...]; h = a[:315]
c = np.rint(1833 + 2.5 * np.random.default_rng(1).standard_normal(h.shape)).astype(a.dtype); np.minimum(h, c, out=h)
d[...] = a' raw.h5
    run --separate-stderr specx-preproc -o two-image.h5 two.h5
    [ "$status" -eq 0 ]
    [ "$(grep -c 'pixels pile up from 22[2-4]. ADU on, and at 182[0-9] ADU: ' <<<"$stderr")" -eq 2 ]
    specx-extract -q -w 6200,6400,0.8 -o f2.h5 two-image.h5
    frame_truth f2.h5 x-truth.h5 >pulls
    cat pulls
    awk '$1 == "clean" { exit !($2 > 400 && $10 < 1.1 && $NF < 5) }' pulls
    # wells hold the same charge where the level wanders from row to row
    raw w amps=2,wander=3 --readnoise 1.2 --no-sky --snr 100:200 --fullwell 3000
    run --separate-stderr specx-preproc -o w.h5 <(fits2h5 -q w.fits)
    [ "$(grep -c 'pixels pile up from 34[0-9]. ADU on' <<<"$stderr")" -eq 2 ]
    # most of the full pixels are of defect columns
    raw c amps=2 --no-sky --snr 30:60 --fullwell 1500 --bad-columns 15
    run --separate-stderr specx-preproc -o c.h5 <(fits2h5 -q c.fits)
    [ "$(grep -c 'pixels pile up from 22[2-4]. ADU on' <<<"$stderr")" -eq 2 ]
    # light that is not full: stars, lamps, the sky, a uniform field, all of them with hits and defect columns, the last
    # kind with two columns side by side, far from light and beside it
    for kind in '--snr 30:200' '--snr 5:300 --bad-columns 3 --cosmics 100' '--flat --bad-columns 1 --seed 7' \
        '--arc all --lamp-level 3e4 --bad-columns 1 --seed 2' '--bad-columns 1 --seed 8' \
        '--snr 30:100 --bad-columns 2 --noise-seed 1685' '--snr 30:100 --bad-columns 2 --noise-seed 1168'; do
        # shellcheck disable=SC2086
        raw y amps=4,gain=0.5 $kind
        run --separate-stderr specx-preproc -f -o y.h5 <(fits2h5 -q y.fits)
        [ "$status" -eq 0 ]
        [[ $stderr != *'pile up'* ]] || { echo "$kind: $stderr"; return 1; }
    done
}

@test "the same bits for any number of threads, from files and pipes; --device cuda" {
    local d=$BATS_FILE_TMPDIR
    fits2h5 -q "$d/one.fits" -o raw.h5
    specx-preproc -q --reproducible -j 1 raw.h5 -o a.h5
    specx-preproc -q --reproducible -j 3 <raw.h5 | cat >b.h5
    h5diff a.h5 b.h5 /image
    run -0 specx-preproc --device cuda raw.h5 -o c.h5
    [[ $output == *'there is no CUDA version'* ]]
    h5diff a.h5 c.h5 /image/data
}

@test "a queue: a folder, a pipe, existing outputs, one that fails" {
    local d=$BATS_FILE_TMPDIR
    fits2h5 -q "$d/one.fits" -o raw1.h5
    cp raw1.h5 raw2.h5
    mkdir out more
    specx-preproc -q raw1.h5 raw2.h5 -o out/
    h5check out/raw1.h5 out/raw2.h5
    fails_with 4 '*2 of 2 frames exist already*' specx-preproc raw1.h5 raw2.h5 -o out/
    rm out/raw1.h5
    run -0 specx-preproc --skip-existing raw1.h5 raw2.h5 -o out/
    [[ $output == *'1 of 2 frames exist already: kept'* ]]
    cat raw1.h5 raw2.h5 | specx-preproc -q -o 'p-%s.h5'
    h5check p-001.h5 p-002.h5
    fails_with 3 '*one.h5*no raw exposure*' specx-preproc "$d/one.h5" raw1.h5 -o more/
    [ -e more/raw1.h5 ] && [ ! -e more/one.h5 ]
    fails_with 3 '*one.h5: no raw exposure*' specx-preproc "$d/one.h5" -o x.h5
    # header and fibermap go with the image; sections do not
    h5dump -d /image/header out/raw2.h5 | grep -q EXPTIME
    run ! grep -q DATASEC <(h5dump -d /image/header out/raw2.h5)
    h5diff out/raw2.h5 raw2.h5 /fibermap
}

@test "sections that cannot be: each with its message" {
    raw x amps=2
    fits2h5 -q x.fits -o raw.h5
    local k bad=('data=[1:9999,1:10]|outside the image' 'data=[1:10,1:10] bias=[5:15,1:10]|overlap'
        'data=[1:10,1:10] bias=[11:20,1:10] ccd=[1:5,1:10]|another size' 'data=[1:10,1:10]|no overscan'
        'data=[1:10,1:10] bias=[11:20,300:310]|beside its pixels' 'data=[1:10,1:10] bias=[11:11,1:10]|no two values')
    for k in "${bad[@]}"; do
        echo "amplifier A gain=1 ${k%|*}" >layout
        fails_with 3 "*${k#*|}*" specx-preproc --layout layout raw.h5 -o y.h5
    done
    fails_with 3 '*absent*' specx-preproc --layout absent raw.h5 -o y.h5
    # without overscan the read noise has to be known
    echo 'amplifier A data=[1:10,1:10] gain=1' >layout
    fails_with 3 '*no overscan shows its read noise*' specx-preproc --overscan none --layout layout raw.h5 -o y.h5
    echo 'amplifier A data=[1:10,1:10] gain=1 readnoise=3' >layout
    specx-preproc -q --overscan none --layout layout raw.h5 -o y.h5
}

@test "real exposures of a slit spectrograph" {
    local raw=${SPX_RAW:-$SPX_SHARED/data/raw}
    [[ -e $raw/kast-b21.fits.gz && -e $raw/kast-b27.fits.gz ]] || skip "no kast-b21.fits.gz, kast-b27.fits.gz in SPX_RAW or SPX_SHARED/data/raw"
    cat >layout <<'END'
amplifier 1 data=[1:1024,1:350] bias=[2049:2080,1:350] gain=1.2 readnoise=3.7
amplifier 2 data=[1025:2048,1:350] bias=[2081:2112,1:350] gain=1.237 readnoise=3.7
END
    run -3 specx-preproc -o x.h5 <(fits2h5 -q "$raw/kast-b21.fits.gz")
    [[ $output == *'no BIASSEC'*'--layout'* ]]
    # a bias: its structure about 0, 1.4 and 1.1 electrons in the median of the two amplifiers, with a scatter of the read noise that the overscan shows
    fits2h5 -q "$raw/kast-b21.fits.gz" | specx-preproc -q -l layout -o bias.h5
    h5check bias.h5
    h5reduce -q -p median --axis all bias.h5:/image/data -o median.h5
    h5dump -A 0 -d /reduce/value median.h5 | awk '/\(0\)/ { exit !($2 < 2 && $2 > 0) }'
    column bias.h5 READNOISE | awk '{ if ($1 < 3 || $1 > 4) exit 1 }'
    fits2h5 -q "$raw/kast-b27.fits.gz" | specx-preproc -q -l layout -o science.h5
    h5check science.h5
}

# series NAME N KEY=VALUE,... [OPTION...]: N exposures NAME-1.h5 ... of one camera. All that are made have other noise.
seed=100
series() {
    local i
    for ((i = 1; i <= $2; i++)); do
        raw "$1-$i" "$3" --instrument-seed 7 --noise-seed $((seed++)) "${@:4}"
        fits2h5 -q "$1-$i.fits" -o "$1-$i.h5"
    done
}

camera=amps=1,gain=1,bias=4,dark=0.02,response=0.02,hot=500

# Digits of 1 electron are noise, too. The level of the overscan is common to all pixels of an exposure, 3 / sqrt(32 x 550)
# electrons: 0.02 of the error of a pixel.
@test "masters: bias, dark and pixel flat are what was put in, within their errors, and hits are left out" {
    series bias 7 "$camera" --bias
    specx-preproc -q --combine bias bias-?.h5 -o bias.h5
    h5check bias.h5
    echo "bias: $(master_truth bias.h5 bias-1-truth.h5 1 0.03 0.01)"
    master_truth bias.h5 bias-1-truth.h5 1 0.03 0.01
    # hits of 0.5 % of the pixels in each
    series dark 5 "$camera" --dark --exptime 1800 --cosmics 300
    specx-preproc -q --combine dark --bias bias.h5 --hot 0.5 dark-?.h5 -o dark.h5
    h5check dark.h5
    echo "dark: $(master_truth dark.h5 bias-1-truth.h5 1 0.05 0.05)"
    master_truth dark.h5 bias-1-truth.h5 1 0.05 0.05
    series flat 4 "$camera,uniform=30000" --exptime 10
    specx-preproc -q --combine flat --bias bias.h5 --dark dark.h5 flat-?.h5 -o flat.h5
    h5check flat.h5
    echo "flat: $(master_truth flat.h5 bias-1-truth.h5 1 0.02 0.03)"
    master_truth flat.h5 bias-1-truth.h5 1 0.02 0.03
    # an exposure that they are applied to
    raw x "$camera" --instrument-seed 7 --noise-seed 3 --exptime 1800
    preproc x
    run -1 raw_truth x.h5 x-truth.h5 0 0.05 0.05
    preproc x --bias bias.h5 --dark dark.h5 --flat flat.h5
    echo "all: $(raw_truth x.h5 x-truth.h5 0 0.05 0.02)"
    raw_truth x.h5 x-truth.h5 0 0.05 0.02
    [ "$(raw_truth x.h5 x-truth.h5 0 1 1 | awk '/masked/ { print $3 }')" -gt 10 ]
    # the product of another kind, camera, size or gain
    fails_with 3 '*dark.h5: is a master dark, not a bias*' specx-preproc --bias dark.h5 bias-1.h5 -o out.h5
    fails_with 3 '*bias.h5: is a bias of * pixels, the exposure has*' \
        specx-preproc --bias bias.h5 "$BATS_FILE_TMPDIR/data/raw-r0.h5" -o out.h5
    echo 'amplifier 1 gain=1.5' >layout
    fails_with 3 '*bias.h5: its gain of amplifier 1 is 1 electron/adu, that of the exposure 1.5*' \
        specx-preproc --bias bias.h5 --layout layout bias-1.h5 -o out.h5
    cp bias.h5 other.h5
    h5edit other.h5 attr /master camera z9
    fails_with 3 '*other.h5: is a bias of camera z9, the exposure is of camera r0*' \
        specx-preproc --bias other.h5 bias-1.h5 -o out.h5
    # what cannot be combined, or not like that
    fails_with 2 '*a master bias is made without --bias*' specx-preproc --combine bias --bias bias.h5 bias-1.h5 -o out.h5
    fails_with 3 '*amplifiers, bias-1.h5*' \
        specx-preproc --combine bias bias-1.h5 "$BATS_FILE_TMPDIR/data/raw-r0.h5" -o out.h5
    fails_with 3 '*no exposure time*' specx-preproc --combine dark bias-1.h5 -o out.h5
    fails_with 3 '*has no light*' specx-preproc --combine flat --bias bias.h5 bias-1.h5 -o out.h5
    run -0 specx-preproc --combine bias dark-1.h5 -o one.h5
    [[ $output == *'FLAVOR in its header is dark: is it a bias?'* && $output == *'one exposure'* ]]
    # an exposure twice
    cp bias-2.h5 copy.h5
    run -0 specx-preproc --combine bias bias-1.h5 bias-2.h5 copy.h5 -o three.h5
    [ "$(grep -c 'has the light of an input before it' <<<"$output")" -eq 1 ]
    [[ $output == *'warning: copy.h5: has the light'* ]]
    # any number of threads, a pipe, and little memory
    specx-preproc -q -j 1 --combine dark --bias bias.h5 dark-?.h5 -o a.h5
    cat dark-?.h5 | specx-preproc -q -j 3 --max-mem 8M --combine dark --bias bias.h5 -o b.h5
    h5diff a.h5 b.h5 /master
}

@test "masters: a wrong gain shows in flats, noise that the overscan does not have in the errors" {
    series flat 3 amps=2,gain-error=1.6,uniform=20000
    run -0 specx-preproc --combine flat flat-?.h5 -o flat.h5
    [[ $output == *'warning: amplifier A: the variance of the exposures is 1.'*'with 1.2'*'it would be right'* ]]
    h5dump -a /master/implausible flat.h5 | grep -q gain
    # a level that jumps from row to row, and is not followed
    series bias 6 amps=1,gain=1,wander=2 --bias
    specx-preproc -q --combine bias --overscan constant bias-?.h5 -o bias.h5
    master_truth bias.h5 bias-1-truth.h5 1 0.1 0.05
    specx-preproc -q --combine bias bias-?.h5 -f -o bias.h5
    master_truth bias.h5 bias-1-truth.h5 1 0.03 0.02
}
